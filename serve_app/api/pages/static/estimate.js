// In words, what the service expects of a task that has not ended; serve_app/cli/output.py has the same ones.
const about = (seconds) => (seconds < 100 ? `about ${Math.max(1, Math.round(seconds))} s` : `about ${Math.round(seconds / 60)} min`);
const ORDINALS = new Intl.PluralRules("en", { type: "ordinal" });
const SUFFIXES = { one: "st", two: "nd", few: "rd", other: "th" };

// `said` is what is said of its status. `details` may be null.
export function foretell(said, details) {
  const { message, queue_position: position, eta } = details ?? {};
  if (message) return message;
  if (position) return `${position}${SUFFIXES[ORDINALS.select(position)]} in the queue${eta === undefined ? "" : `, ${about(eta)}`}`;
  return eta === undefined ? said : `${said}, ${about(eta)} left`;
}
