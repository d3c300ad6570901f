// Where nodes and links of the graph stand. Pure; what stood somewhere stays there in the order.

const GAP = 12;
const TOP = 26;
const EDGE = 2; // at both sides, for the outlines of what is chosen
const HEIGHTS = [44, 30, 54];
const LINK_MIN = 1.5;
const LINK_MAX = 18;

/**
 * @param graph {nodes, links} of graph_model.
 * @param width that there is.
 * @param order Map from id to its place in its layer; new ids are added, gone ones go.
 * @return {width, height, columns, nodes: Map id -> {node, x, y, width, height}, links}
 */
export function layOut(graph, width, order) {
  settle(graph, order);
  const columns = columnsOf(graph, width);
  const layers = [0, 1, 2].map((layer) =>
    graph.nodes.filter((node) => node.layer === layer).sort((one, other) => order.get(one.id) - order.get(other.id)));
  const heights = layers.map((nodes, layer) => nodes.length * (HEIGHTS[layer] + GAP) - GAP);
  const height = Math.max(120, ...heights) + TOP + GAP;
  const places = new Map();
  layers.forEach((nodes, layer) => {
    let y = TOP + (height - TOP - GAP - heights[layer]) / 2;
    for (const node of nodes) {
      places.set(node.id, { node, ...columns[layer], y, height: HEIGHTS[layer] });
      y += HEIGHTS[layer] + GAP;
    }
  });
  return { width, height, columns, nodes: places, links: linkPlaces(graph.links, places) };
}

/** Bring the order up to date: by weight at first sight, and below those that stood there. */
function settle(graph, order) {
  const there = new Set(graph.nodes.map(({ id }) => id));
  for (const id of [...order.keys()]) {
    if (!there.has(id)) order.delete(id);
  }
  const fresh = graph.nodes.filter(({ id }) => !order.has(id)).sort((one, other) => other.load - one.load || (one.id < other.id ? -1 : 1));
  let next = Math.max(-1, ...order.values()) + 1;
  for (const { id } of fresh) {
    order.set(id, next);
    next += 1;
  }
}

function columnsOf(graph, width) {
  const outer = Math.max(96, Math.min(width * 0.29, 270));
  const inner = Math.max(68, Math.min(width * 0.19, 170));
  return [
    { x: EDGE, width: outer },
    { x: (width - inner) / 2, width: inner },
    { x: width - outer - EDGE, width: outer },
  ];
}

/** How wide a link is: by the root of its load, so that light ones are seen beside heavy ones. */
export function linkWidth(load, most) {
  return most > 0 ? LINK_MIN + (LINK_MAX - LINK_MIN) * Math.sqrt(load / most) : LINK_MIN;
}

function linkPlaces(links, places) {
  const most = Math.max(0, ...links.map(({ load }) => load));
  const sized = links.map((link) => ({ link, width: linkWidth(link.load, most) }));
  const starts = ports(sized, places, "from", "to");
  const ends = ports(sized, places, "to", "from");
  return sized.map(({ link, width }) => {
    const from = places.get(link.from);
    const x1 = from.x + from.width;
    const x2 = places.get(link.to).x;
    const [y1, y2] = [starts.get(link.id), ends.get(link.id)];
    const bend = (x2 - x1) * 0.45;
    return { link, width, x1, y1, x2, y2, path: `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}` };
  });
}

/** At which height links touch a side of a node: one below the other, in the order of where they lead. */
function ports(sized, places, side, far) {
  const found = new Map();
  const byNode = new Map();
  for (const each of sized) byNode.set(each.link[side], [...(byNode.get(each.link[side]) ?? []), each]);
  for (const [id, all] of byNode) {
    const { y, height } = places.get(id);
    all.sort((one, other) => places.get(one.link[far]).y - places.get(other.link[far]).y);
    const total = all.reduce((room, { width }) => room + width + 1, -1);
    const shrink = Math.min(1, (height - 6) / total);
    let at = y + height / 2 - (total * shrink) / 2;
    for (const { link, width } of all) {
      found.set(link.id, at + (width * shrink) / 2);
      at += (width + 1) * shrink;
    }
  }
  return found;
}

/** A text cut to the room that there is, at so many units a character. */
export function fit(text, room, unit = 6.6) {
  const most = Math.max(3, Math.floor(room / unit));
  return text.length <= most ? text : `${text.slice(0, most - 1)}…`;
}
