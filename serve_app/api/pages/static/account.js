// What the project and its organization have: each section for those who may see it.
import { open } from "./shell.js";
import { credits, usage } from "./account_credits.js";
import { keys } from "./account_keys.js";
import { licences } from "./account_licences.js";
import { members } from "./account_members.js";
import { finetunes } from "./account_models.js";
import { password } from "./account_password.js";
import { programs } from "./account_programs.js";
import { projects } from "./account_projects.js";

const session = await open();
const sections = [credits, members, finetunes, keys, programs, projects, usage, licences, password];
const holder = document.getElementById("sections");
const elements = await Promise.all(sections.map((section) => section(session)));
holder.append(...elements.filter(Boolean));
