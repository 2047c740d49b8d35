// The way to the server. The token in the address is exchanged once for a session: a cookie that no script can read,
// and a key that this page keeps and no other page can read.

const KEY = "comem-key";

export class Refused extends Error {
  constructor(status, what, advice) {
    super(what);
    this.status = status;
    this.what = what;
    this.advice = advice;
  }
}

let locked = () => {};

// Calls `then` when the server wants the token again.
export function whenLocked(then) {
  locked = then;
}

// Takes the token out of the address, so that it is in no history. Whether there is a session now.
export async function begin() {
  const found = /^#token=([0-9a-f]+)$/.exec(location.hash);
  if (found) {
    history.replaceState(null, "", "#/jobs");
    await open(found[1]);
  }
  return sessionStorage.getItem(KEY) !== null;
}

export async function open(token) {
  sessionStorage.removeItem(KEY);
  const said = await send("POST", "/api/session", { token });
  sessionStorage.setItem(KEY, (await said.json()).key);
}

async function send(method, path, body, signal) {
  const headers = { "x-comem-key": sessionStorage.getItem(KEY) ?? "" };
  if (body !== undefined) headers["content-type"] = "application/json";
  let response;
  try {
    response = await fetch(path, { method, headers, signal, cache: "no-store", credentials: "same-origin",
      body: body === undefined ? undefined : JSON.stringify(body) });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, "the server does not answer", "is comem ui still running?");
  }
  if (response.ok) return response;
  const said = await response.json().catch(() => ({ what: `the server says ${response.status}`, advice: "" }));
  if (response.status === 401 && path !== "/api/session") locked();
  throw new Refused(response.status, said.what, said.advice);
}

export async function ask(method, path, body) {
  return (await send(method, path, body)).json();
}

export const get = (path) => ask("GET", path);

// Hears a stream of events: `heard(kind, data)` for each, `over(error)` at its end. The result stops it.
export function listen(path, heard, over) {
  const stop = new AbortController();
  const read = async () => {
    const response = await send("GET", path, undefined, stop.signal);
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      text += value;
      const events = text.split("\n\n");
      text = events.pop();
      for (const event of events) {
        const [kind, data] = event.split("\n");
        heard(kind.slice("event: ".length), JSON.parse(data.slice("data: ".length)));
      }
    }
  };
  read().then(() => over(null), (error) => { if (error.name !== "AbortError") over(error); });
  return () => stop.abort();
}
