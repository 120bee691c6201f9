// The theme that was chosen, before anything is painted; Swagger UI has a class for it.
const theme = localStorage.getItem("theme") ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
if (localStorage.getItem("theme")) document.documentElement.dataset.theme = theme;
document.documentElement.classList.toggle("dark-mode", theme === "dark");
