// A receiver as a customer would write it, on the official library: 204 for what is signed with its secret, else 401.
// The secret is the path, in URL-safe base64. Prints its port; ends with its standard input.
import { createServer } from "node:http";
import { Webhook } from "standardwebhooks";

function verifier(secret) {
  if (secret.startsWith("whsec_")) return new Webhook(secret);
  return new Webhook(new TextEncoder().encode(secret), { format: "raw" });
}

const server = createServer((request, response) => {
  const parts = [];
  request.on("data", (part) => parts.push(part));
  request.on("end", () => {
    try {
      const secret = Buffer.from(request.url.slice(1), "base64url").toString("utf8");
      const told = verifier(secret).verify(Buffer.concat(parts).toString("utf8"), request.headers);
      if (told.id !== request.headers["webhook-id"]) throw new Error("the id is that of another task");
      response.writeHead(204).end();
    } catch (problem) {
      response.writeHead(401).end(String(problem.message));
    }
  });
});
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
process.stdin.on("end", () => process.exit(0)).resume();
