-- name: decisions_mix  Answers of a time, weighted by what each stands for, with regret and error. Index: routing_decision_at.
WITH d AS (
    SELECT answer, stands_for, regret_ms, measured_ms, predicted_ms FROM routing_decision
    WHERE at >= %s AND at < %s AND (%s = '' OR model = %s)),
a AS (SELECT answer, sum(stands_for) AS n FROM d GROUP BY answer)
SELECT (SELECT jsonb_object_agg(answer, n) FROM a),
    (SELECT count(*) FROM d WHERE measured_ms IS NOT NULL)::int,
    (SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY regret_ms) FROM d),
    (SELECT percentile_cont(0.95) WITHIN GROUP (ORDER BY regret_ms) FROM d),
    (SELECT avg(regret_ms) FROM d),
    (SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY abs(measured_ms - predicted_ms)) FROM d)
