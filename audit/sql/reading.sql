-- What the pages of the log are read by, newest first: every filter alone leads to its events in the order of time.
-- Numbers of the queue and of the log need none: they are keys already.
CREATE INDEX audit_event_time ON audit_event (time_us);
CREATE INDEX audit_event_actor ON audit_event (actor_ref, time_us);
CREATE INDEX audit_event_kind ON audit_event (event_type, time_us);
CREATE INDEX audit_event_request ON audit_event (request_id, time_us) WHERE request_id <> '';
CREATE INDEX audit_event_unusual ON audit_event (outcome, time_us) WHERE outcome <> 1;
