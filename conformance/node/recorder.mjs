// A reporter for `node --test`: one JSON line for each test, as the Python suites write them.
export default async function* recorder(events) {
  for await (const { type, data } of events) {
    if (type !== "test:pass" && type !== "test:fail") continue;
    if (data.details.type === "suite") continue;
    const error = data.details.error;
    const record = {
      test: `${data.file.split("/").pop()}::${data.name}`,
      outcome: outcome(type, data),
      seconds: data.details.duration_ms / 1000,
      detail: error ? String(error.cause?.stack ?? error.stack ?? error) : "",
    };
    yield `${JSON.stringify(record)}\n`;
  }
}

function outcome(type, data) {
  if (data.skip !== undefined) return "skipped";
  return type === "test:pass" ? "passed" : "failed";
}
