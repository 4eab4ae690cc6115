package console

import (
	"fmt"
	"strings"

	"github.com/chromedp/chromedp/kb"
)

// slide moves a slider by some steps; negative: to the left.
func (p *tab) slide(selector string, by int) {
	p.t.Helper()
	p.until("the slider "+selector, fmt.Sprintf("document.querySelector(%q)", selector))
	if !p.keyboard {
		p.eval(fmt.Sprintf(`(e => { e.value = Number(e.value) + %d; e.dispatchEvent(new Event("input", {bubbles: true})); e.dispatchEvent(new Event("change", {bubbles: true})); return 0; })(document.querySelector(%q))`, by, selector), nil)
		return
	}
	p.reach(selector, fmt.Sprintf("document.querySelector(%q)", selector))
	switch {
	case by < -100:
		p.keys(kb.Home)
	case by < 0:
		p.keys(strings.Repeat(kb.ArrowLeft, -by))
	default:
		p.keys(strings.Repeat(kb.ArrowRight, by))
	}
}

// travelled: an object goes back to an earlier version and forth again, also after it was deleted; a namespace goes back with all
// that is in it; a table shows an earlier time. The address has the version, the time and the plan.
func travelled(p *tab, namespace string) {
	s := p.server
	in := func(args ...string) string { p.t.Helper(); return must(p.t, s, append(args, "-n", namespace)...) }
	colour := func(want string) {
		p.t.Helper()
		if got := in("get", "configmap", "paint", "-o", "jsonpath={.data.colour}"); got != want {
			p.t.Errorf("the object has the colour %q, want %q", got, want)
		}
	}
	p.open("#/objects/core/endpoints?ns=" + namespace)
	p.press("Earlier…")
	p.see("The server keeps no history of endpoints")
	p.until("no slider", `!document.querySelector("#time")`)
	in("create", "configmap", "paint", "--from-literal=colour=red")
	for _, c := range []string{"blue", "green"} {
		in("patch", "configmap", "paint", "--type=merge", "-p", `{"data":{"colour":"`+c+`"}}`)
	}
	uid := in("get", "configmap", "paint", "-o", "jsonpath={.metadata.uid}")
	differs := func(was, is string) string {
		return fmt.Sprintf(`[...document.querySelectorAll(".diff[role=region] del")].map(e => e.innerText.trim()).join() === "-   colour: %s" && [...document.querySelectorAll(".diff[role=region] ins")].map(e => e.innerText.trim()).join() === "+   colour: %s"`, was, is)
	}
	p.open("#/object/core/configmaps/" + namespace + "/paint?history=yes")
	if p.role != "" {
		p.see("Your roles have no right to the history of configmaps")
		must(p.t, s, "create", "role", "historian", "--verb=history", "--resource=configmaps", "-n", namespace)
		in("create", "rolebinding", "historian", "--role=historian", "--user="+p.user)
		p.open("#/object/core/configmaps/" + namespace + "/paint?history=")
		p.reload()
	} else {
		p.press("Close the history")
	}
	p.press("History…")
	p.until("what the last change did", differs("blue", "green"))
	p.slide("#version", -1)
	p.until("what the change before did", differs("red", "blue"))
	p.accessible("versions")
	p.shoot("versions")
	p.reload()
	p.until("the same version", differs("red", "blue"))
	p.click("input[name=against][value=now]")
	p.until("what differs from now", differs("blue", "green"))
	if p.lacks("edit", "What would going back", "Your roles have no right to bring it back") {
		return
	}
	p.press("What would going back to this change?")
	p.see("0 would be created, 1 changed, 0 deleted.")
	p.accessible("the plan of a revert")
	p.shoot("plan")
	p.reload()
	p.click("#revert-now")
	p.see("0 created, 1 changed, 0 deleted")
	colour("blue")
	p.shoot("reverted")
	p.press("Undo…")
	p.see("0 would be created, 1 changed, 0 deleted.")
	p.click("#revert-now")
	p.until("two reverts", `document.querySelector("#restores")?.rows.length === 3`)
	colour("green")

	then := in("get", "configmap", "paint", "-o", "jsonpath={.metadata.resourceVersion}")
	in("delete", "configmap", "paint")
	p.open("#/object/core/configmaps/" + namespace + "/paint?history=yes&at=" + then)
	p.see("It was removed.")
	p.press("What would going back to this change?")
	p.see("1 would be created, 0 changed, 0 deleted.")
	p.click("#revert-now")
	in("wait", "--for=create", "configmap/paint", "--timeout=1m") // the page shows the colour of then already
	p.see("colour: green")
	if got := in("get", "configmap", "paint", "-o", "jsonpath={.metadata.uid}"); got != uid {
		p.t.Errorf("it came back with the uid %s, and had %s", got, uid)
	}

	in("create", "configmap", "lost")
	then = in("create", "configmap", "mark", "-o", "jsonpath={.metadata.resourceVersion}")
	in("create", "configmap", "late")
	in("delete", "configmap", "lost")
	in("patch", "configmap", "paint", "--type=merge", "-p", `{"data":{"colour":"black"}}`)
	p.open("#/objects/core/configmaps?ns=" + namespace + "&at=" + then)
	rows := `[...document.querySelectorAll(".virtual tbody tr a")].map(e => e.innerText).join(" ")`
	p.until("the table of then", rows+` === "kube-root-ca.crt lost mark paint"`)
	p.until("no delete in the past", `!document.querySelector("input[type=checkbox][aria-label^=Choose]")`)
	p.press("What has changed since?")
	p.see("Since then 1 created, 1 changed, 1 deleted.")
	p.accessible("a table of then")
	p.shoot("table")
	p.slide("#time", -200)
	p.until("an earlier time in the address", `location.hash.includes("T") && document.querySelector("#shown-time").innerText !== "now"`)
	p.press("Back to now")
	p.until("the table of now", rows+` === "kube-root-ca.crt late mark paint"`)
	p.press("Earlier…")
	p.until("the slider", `document.querySelector("#time")`)

	p.open("#/object/core/namespaces/-/" + namespace + "?history=yes&at=" + then)
	if p.lacks("", "What would going back", "Your roles have no right to the history of namespaces") {
		return
	}
	p.see("Since then 1 created, 1 changed, 1 deleted.")
	p.press("What would going back to this change?")
	p.see("1 would be created, 1 changed, 1 deleted.")
	p.accessible("the plan for a namespace")
	p.shoot("namespace")
	p.click("#revert-now")
	p.until("its end", `!location.hash.includes("at=")`) // the comparison has the same words
	p.see("1 created, 1 changed, 1 deleted")
	if got := in("get", "configmaps", "-o", "jsonpath={.items[*].metadata.name}"); got != "kube-root-ca.crt lost mark paint" {
		p.t.Errorf("the namespace has %s", got)
	}
	colour("green")
	p.open("#/now?ns=&at=&history=")
}
