// Which view an address shows. Addresses stand behind the "#", so that every node serves all.

export const NAVIGATION = [
  { name: "overview", title: "Overview", key: "o" },
  { name: "flow", title: "Flow", key: "f" },
  { name: "queues", title: "Queues", key: "q" },
  { name: "connections", title: "Connections", key: "c" },
  { name: "channels", title: "Channels", key: "h" },
  { name: "exchanges", title: "Exchanges", key: "x" },
  { name: "policies", title: "Policies", key: "p" },
  { name: "access", title: "Access", key: "a" },
  { name: "limits", title: "Limits", key: "l" },
];

const ONE = { queues: ["queue", 2], connections: ["connection", 1], flow: ["flow", 1] };

/** "#/queues/%2F/orders" -> {name: "queue", section: "queues", parts: ["/", "orders"]}. */
export function parseRoute(hash) {
  const parts = hash.replace(/^#\/?/, "").split("/").map(decode);
  const section = NAVIGATION.some(({ name }) => name === parts[0]) ? parts[0] : "overview";
  const rest = parts.slice(1);
  const one = ONE[section];
  if (one !== undefined && rest.length === one[1]) return { name: one[0], section, parts: rest };
  return { name: section, section, parts: [] };
}

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
