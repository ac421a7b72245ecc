// Before anything is painted: the colours chosen here, else those that the system prefers.
(() => {
  const KEY = "draftfleet-theme";
  const apply = (theme) => {
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
  };
  const kept = localStorage.getItem(KEY) ?? "auto";
  apply(kept);
  addEventListener("DOMContentLoaded", () => {
    const choice = document.getElementById("theme");
    choice.value = kept;
    choice.addEventListener("change", () => {
      localStorage.setItem(KEY, choice.value);
      apply(choice.value);
    });
  });
})();
