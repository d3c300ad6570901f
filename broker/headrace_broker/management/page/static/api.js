// Requests to this node. What changes something shows the token of the log-in.

const CHANGE_HEADER = "X-Headrace-Change";
let changeToken = "";

/** A refusal, with the reason that the node gives. */
export class Refused extends Error {
  constructor(status, reason) {
    super(reason);
    this.status = status;
  }
}

/** Called when a log-in is over. */
export const onLoggedOut = { call: () => {} };

async function send(method, path, body, headers = {}) {
  const options = { method, headers: { [CHANGE_HEADER]: changeToken, ...headers }, cache: "no-store" };
  if (body !== undefined) {
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  let answer;
  try {
    answer = await fetch(path, options);
  } catch {
    throw new Refused(0, "the node does not answer");
  }
  const text = await answer.text();
  let told = null;
  try {
    told = text ? JSON.parse(text) : null;
  } catch {
    throw new Refused(answer.status, `what stands before the node answered ${answer.status}`);
  }
  if (answer.ok) return { told, partial: answer.headers.get("X-Headrace-Partial") };
  if (answer.status === 401 && path !== "/page/login") onLoggedOut.call();
  throw new Refused(answer.status, told?.reason ?? `the node answered ${answer.status}`);
}

/** A path of the API out of its parts. */
export function path(...parts) {
  return `/api/${parts.map(encodeURIComponent).join("/")}`;
}

export async function get(where) {
  return (await send("GET", where)).told;
}

export async function change(method, where, body, headers) {
  return (await send(method, where, body, headers)).told;
}

/** Log in; returns the session. */
export async function logIn(user, password) {
  const { told } = await send("POST", "/page/login", { user, password });
  changeToken = told.change_token;
  return told;
}

/** The session there is, or null. */
export async function session() {
  const { told } = await send("GET", "/page/session");
  changeToken = told?.change_token ?? "";
  return told;
}

export async function logOut() {
  await send("POST", "/page/logout");
  changeToken = "";
}
