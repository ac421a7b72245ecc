// The replicas of the service, looked at again and again while the page is in view.
import { byId, make } from "./dom.js";
import { read } from "./server.js";
import { offerDrafters } from "./settings.js";

const PERIOD_MS = 1000;
const MAX_PERIOD_MS = 15_000;

const list = byId("replicas");
const note = byId("fleet-note");
let seen = "";

export function watchFleet() {
  let period = PERIOD_MS;
  const look = async () => {
    if (byId("fleet-live").checked && !document.hidden) {
      try {
        show(await read("fleet"));
        period = PERIOD_MS;
      } catch (error) {
        note.textContent = `Not known now: ${error.message}.`;
        period = Math.min(2 * period, MAX_PERIOD_MS);
      }
    }
    setTimeout(look, period);
  };
  look();
}

function show(fleet) {
  const now = JSON.stringify(fleet);
  if (now === seen) return;
  seen = now;
  list.replaceChildren(table(fleet));
  note.textContent = fleet.left_out ? `${fleet.left_out} more replicas are not listed.` : "";
  offerDrafters(new Set(fleet.groups.filter((group) => group.role === "drafter").map((group) => group.kind)));
}

function table({ groups, replicas }) {
  const several = new Set(groups.filter((group) => group.replicas > 1).map((group) => group.role + group.kind));
  const head = ["Replica", "Sessions", "Step", "Queue"].map((title, at) => make("th", { scope: "col", class: at ? "number" : "" }, title));
  return make("table", {}, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, 
    ...replicas.map((replica) => row(replica, several.has(replica.role + replica.kind)))));
}

/** Ids are told where there is more than one of a sort. */
function row(replica, isOneOfSeveral) {
  const { role, kind, sessions, capacity, batch, queue, exactness } = replica;
  const name = make("th", { scope: "row" }, role, kind && make("b", {}, ` ${kind}`));
  if (exactness) name.append(make("span", { class: "exactness" }, exactness));
  if (isOneOfSeveral) name.append(make("span", { class: "id" }, replica.replica));
  return make("tr", { class: role, title: `${role} ${kind} ${replica.replica}`.replace("  ", " ") },
    name, load(sessions, capacity), number(batch, role), number(queue, role));
}

function load(sessions, capacity) {
  if (!capacity) return make("td", { class: "number" }, sessions ? String(sessions) : "–");
  const share = Math.min(sessions / capacity, 1);
  const fill = make("i", {});
  fill.style.width = `${share * 100}%`;
  return make("td", { class: "number" }, make("span", { class: "meter", "aria-hidden": "true" }, fill),
    `${sessions}`, make("span", { class: "of" }, `/${capacity}`));
}

/** Only targets and drafters compute in steps. */
function number(value, role) {
  return make("td", { class: "number" }, ["target", "drafter"].includes(role) ? String(value) : "–");
}
