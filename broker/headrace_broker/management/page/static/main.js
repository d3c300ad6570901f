// Begins: who is logged in sees the page, everybody else the form for that.

import { logOut, onLoggedOut, session } from "./api.js";
import { Frame } from "./frame.js";
import { showLogin } from "./login.js";

const app = document.getElementById("app");
let frame = null;

function begin(found) {
  frame?.close();
  frame = null;
  if (found === null) {
    showLogin(app, (logged) => {
      begin(logged);
      frame.main.focus(); // the form that had the focus is gone
    });
    return;
  }
  frame = new Frame(app, found, async () => {
    await logOut();
    begin(null);
  });
}

onLoggedOut.call = () => begin(null);

session().then(begin, () => {
  // The node does not answer: the form says so when somebody tries.
  begin(null);
});
