-- What a line of an access log must be, and what the feed holds of it: `squall prepare --sql` (docs/spark.md).
-- Common Log Format, and the microseconds: host ident user [time] "method target protocol" status bytes microseconds
WITH
  lines AS (
    SELECT path, line_no, text, r'^\S+ \S+ \S+ \[(\d\d/[A-Za-z]{3}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4})\] "[A-Z]+ ([^\s"]+) HTTP/[\d.]+" (\d+) (\d{1,15}|-) (\d{1,15})$' AS form
    FROM input
  ),
  parts AS (
    SELECT path, line_no, text, text RLIKE form AS has_form,
      unix_timestamp(try_to_timestamp(regexp_extract(text, form, 1), 'dd/MMM/yyyy:HH:mm:ss Z')) AS at,
      regexp_extract(text, form, 2) AS target,
      try_cast(regexp_extract(text, form, 3) AS int) AS status,
      -- A dash stands for no bytes.
      coalesce(try_cast(regexp_extract(text, form, 4) AS bigint), 0) AS bytes,
      try_cast(regexp_extract(text, form, 5) AS bigint) AS micros
    FROM lines
  )
SELECT at,
  -- One URL for all that are not there, or bad clients would make up as many as they like.
  CASE WHEN status = 404 THEN '(not found)' ELSE substring_index(target, '?', 1) END AS url,
  status, bytes,
  -- Half a millisecond is rounded up, as everywhere.
  (micros + 500) DIV 1000 AS ms,
  path AS _path, line_no AS _line_no, text AS _raw,
  CASE
    WHEN trim(text) = '' THEN 'empty'
    WHEN NOT has_form THEN 'not in Common Log Format with %D'
    WHEN at IS NULL THEN 'no such time'
    WHEN status IS NULL OR status NOT BETWEEN 100 AND 599 THEN 'no such status'
  END AS _reason
FROM parts
