// The account page: sections on the project and the organization, as far as the person may see them.
import { keysSection, membersSection, oauthClientsSection, passwordSection } from "./account_access.js";
import { creditsSection, licencesSection, limitsSection, usageSection } from "./account_billing.js";
import { tunedModelsSection } from "./account_models.js";
import { Session } from "./session.js";

const SECTIONS = [creditsSection, membersSection, tunedModelsSection, keysSection, oauthClientsSection, limitsSection,
  usageSection, licencesSection, passwordSection];

const session = await Session.open();
const elements = await Promise.all(SECTIONS.map((section) => section(session)));
document.getElementById("sections").append(...elements.filter(Boolean));
