// What the page asks of the service. Paths are relative, so that it works below any prefix.
import { eventData } from "./events.js";

const KEY = "draftfleet-key";

export class ServerError extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

/** Kept in this tab only. */
export const accessKey = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set: (key) => (key ? sessionStorage.setItem(KEY, key) : sessionStorage.removeItem(KEY)),
};

/** The JSON at a path. Throws ServerError. */
export async function read(path) {
  return (await ask(path, { signal: AbortSignal.timeout(10_000) })).json();
}

/** The events of one streamed answer to a chat. Throws ServerError, and AbortError when stopped. */
export async function* streamChat(messages, options, signal) {
  const { drafter, force, ...sampling } = options;
  const body = {
    model: "default",
    messages,
    ...sampling,
    stream: true,
    stream_options: { include_usage: true },
    draftfleet: { drafter, force, trace: true },
  };
  const headers = { "content-type": "application/json" };
  const reply = await ask("v1/chat/completions", { method: "POST", headers, body: JSON.stringify(body), signal });
  for await (const data of eventData(reply.body)) {
    if (data === "[DONE]") return;
    const event = JSON.parse(data);
    if (event.error) throw new ServerError(event.error.message, 200);
    yield event;
  }
  throw new ServerError("the answer broke off", 200);
}

async function ask(path, options) {
  const key = accessKey.get();
  const headers = { ...options.headers, ...(key && { authorization: `Bearer ${key}` }) };
  let reply;
  try {
    reply = await fetch(path, { ...options, headers, credentials: "omit" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError("the service does not answer", 0);
  }
  if (reply.ok) return reply;
  const told = await reply.json().catch(() => null);
  throw new ServerError(told?.error?.message ?? `the service answered ${reply.status}`, reply.status);
}
