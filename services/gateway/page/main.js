// Puts the page together: who listens to what.
import { clearChat, sendChat } from "./chat.js";
import { offerCompare, sendCompare } from "./compare.js";
import { byId, say } from "./dom.js";
import { watchFleet } from "./fleet.js";
import { accessKey, read } from "./server.js";
import { isTogether, options } from "./settings.js";
import { starters } from "./starters.js";

const MODEL_RETRY_MS = 3000;

const form = byId("composer");
const prompt = byId("prompt");
const act = byId("act");
const wide = matchMedia("(min-width: 62rem)");
let running = null; // the AbortController of what runs

const mode = () => document.querySelector("input[name=mode]:checked").value;

async function send() {
  if (running || !form.reportValidity()) return;
  const text = prompt.value;
  const isChat = mode() === "chat";
  running = new AbortController();
  act.textContent = "Stop";
  form.classList.add("running");
  if (isChat) prompt.value = "";
  try {
    const turns = isChat
      ? [await sendChat(text, options(), running.signal)]
      : await sendCompare(text, options(), isTogether(), running.signal);
    if (turns.some((turn) => turn.needsKey)) askForKey();
    if (isChat && turns[0].answer.tokens.length === 0 && !prompt.value) prompt.value = text;
  } finally {
    running = null;
    act.textContent = "Send";
    form.classList.remove("running");
  }
}

const stop = () => running?.abort();

function askForKey() {
  byId("access").open = true;
  byId("key").focus();
}

function choose(text) {
  prompt.value = text;
  prompt.focus();
}

function showMode() {
  const isChat = mode() === "chat";
  byId("chat").hidden = !isChat;
  byId("compare").hidden = isChat;
  document.body.classList.toggle("comparing", !isChat);
  byId("drafter").querySelector("[value=none]").disabled = !isChat;
  if (!isChat && byId("drafter").value === "none") byId("drafter").value = "auto";
}

async function showModel() {
  try {
    const { data } = await read("v1/models");
    const { name, precision, exactness, device } = data[0].draftfleet;
    say(byId("model"), `${name} · ${precision} on ${device} · ${exactness}`);
  } catch (error) {
    say(byId("model"), error.message);
    if (error.status === 401) askForKey();
    else setTimeout(showModel, MODEL_RETRY_MS);
  }
}

function layOut() {
  byId("side").open = wide.matches;
  byId("settings").open = wide.matches;
}

// The form checks itself in `send` only: while an answer comes, an empty prompt must not keep Stop from working.
form.addEventListener("submit", (event) => {
  event.preventDefault();
  if (running) stop();
  else send();
});
prompt.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  send();
});
addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  byId("access").open = false;
  stop();
});
byId("mode").addEventListener("change", showMode);
byId("clear").addEventListener("click", () => {
  stop();
  clearChat();
  prompt.focus();
});
byId("show-rejected").addEventListener("change", (event) => {
  document.body.classList.toggle("show-rejected", event.target.checked);
});
byId("key").value = accessKey.get();
byId("key").addEventListener("input", (event) => accessKey.set(event.target.value.trim()));
byId("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  byId("access").open = false;
  showModel();
  prompt.focus();
});
wide.addEventListener("change", layOut);

layOut();
byId("empty").append(starters(choose));
offerCompare(starters(choose));
showMode();
showModel();
watchFleet();
