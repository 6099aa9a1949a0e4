-- As in retention.sql, with 0x0213 (namespaces fenced), 0x0502, 0x0504 and 0x0505 (deletions asked for, changed, stopped),
-- 0x0242 and 0x0243 (deny windows of its own), 0x050F (a session has ended), 0x0520 and 0x0521 (pins).
-- What is ordered, concluded and certified is the console's own to say.
DROP POLICY of_tenants ON audit_event;
CREATE POLICY of_tenants ON audit_event AS RESTRICTIVE FOR INSERT TO kv_tenant WITH CHECK (
  flags & ~1 = 0
  AND event_type IN (272, 273, 274, 275, 276, 277, 278, 288, 289, 290, 516, 528, 529, 531, 547, 578, 579, 752, 755, 1282,
    1284, 1285, 1295, 1312, 1313, 1537, 1538, 1794, 1796, 1798, 1799, 1800, 1808, 1809, 1810));
