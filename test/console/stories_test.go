package console

import (
	"cmp"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp/kb"

	"github.com/exeunt/exeunt/test/harness"
)

// story is what a person does with the page, in a namespace of its own.
type story struct {
	name string
	tell func(p *tab, namespace string)
}

// look is a way in which a story is told.
type look struct {
	width          int64
	dark, keyboard bool // keyboard: with the keys alone
}

// looks are all of them; with -short, three that have each width, both colour schemes, mouse and keyboard.
func looks() (all []look) {
	if testing.Short() {
		return []look{{1440, false, false}, {1024, true, true}, {390, false, true}}
	}
	for _, width := range []int64{1440, 1024, 390} {
		for _, dark := range []bool{false, true} {
			all = append(all, look{width, dark, false}, look{width, dark, true})
		}
	}
	return all
}

var stories = []story{{"back", callBack}, {"guard", guarded}, {"edit", edited}, {"palette", found}, {"many", many}, {"history", travelled}, {"expiry", expired}}

// hear tells a story in a look, in a namespace of its own, if others is set, among many other objects.
func (p *tab) hear(told story, i int, others bool) {
	look, whole := looks()[i], p.t
	whole.Run(fmt.Sprintf("%s-%d-%d%s", told.name, i, look.width, p.role), func(t *testing.T) {
		p.t, p.keyboard = t, look.keyboard
		defer func() { p.t, p.keyboard = whole, false }()
		p.size(look.width, 900)
		p.dark(look.dark)
		namespace := fmt.Sprintf("%s-%d%s", told.name, i, p.role)
		must(t, p.server, "create", "namespace", namespace)
		if p.role != "" {
			must(t, p.server, "create", "rolebinding", p.role, "--clusterrole="+p.role, "--user="+p.user, "-n", namespace)
			p.open("#/now?ns=" + namespace)
			p.reload() // the page remembers rights for 20 seconds
		}
		if others {
			surround(p, told, namespace)
		}
		told.tell(p, namespace)
		p.until("no sideways scrolling", `document.documentElement.scrollWidth <= innerWidth`)
	})
}

var roles = []string{"edit", "view"}

// openTabAs signs a user in who has a role in the namespaces of its stories only.
func openTabAs(t *testing.T, s *harness.Server, role string) *tab {
	t.Helper()
	p := openTab(t, s)
	p.role, p.user = role, role+"er"
	p.expect("console/session") // before the sign-in there is no session
	p.signInAs(addUser(t, s, p.user))
	return p
}

// lacks reports whether the user has no right to what only a role, or the administrator, may do. Then the page does not offer it,
// and shows why, if it says something about it.
func (p *tab) lacks(role, offer, why string) bool {
	p.t.Helper()
	if p.role == "" || p.role == role {
		return false
	}
	p.see(why)
	p.until("no "+offer, fmt.Sprintf(`!document.querySelector("main")?.querySelector(%[1]q) && ![...document.querySelectorAll("main button")].some(e => e.innerText.startsWith(%[2]q))`, selectorOr(offer), offer))
	return true
}

// selectorOr is an offer if that is a selector; the text of a button is none.
func selectorOr(offer string) string {
	if strings.ContainsAny(offer[:1], "#.[") {
		return offer
	}
	return "#none"
}

// TestStories tells each story in each look, in one browser on one server, and to an editor and a viewer of its namespace. The browser
// may report no error, and axe none.
func TestStories(t *testing.T) {
	s := harness.Start(t, harness.SQLite)
	p := openTab(t, s)
	p.signIn()
	for n, told := range stories {
		for i := range looks() {
			if !testing.Short() || i == n%len(looks()) { // the looks take turns
				p.hear(told, i, false)
			}
		}
	}
	for n, role := range roles {
		q := openTabAs(t, s, role)
		for k, told := range stories {
			for i := range looks() {
				if !testing.Short() || (k+n)%3 == 0 && i == (k+n)%len(looks()) {
					q.hear(told, i, false)
				}
			}
		}
	}
	p.open("#/now")
	p.until("the last minutes", `[...document.querySelectorAll("#hour svg")].some(e => /removed in a minute: .* at most/.test(e.ariaLabel))`)
	p.accessible("the last hour")
	p.shootAll("hour")
}

// callBack: a deletion is over. One of its objects comes back alone, after the page has shown what that changes; then the rest.
// Who restored what stays after a reload.
func callBack(p *tab, namespace string) {
	s := p.server
	in := func(args ...string) string { p.t.Helper(); return must(p.t, s, append(args, "-n", namespace)...) }
	in("create", "configmap", "owner", "--from-literal=colour=red")
	uid := in("get", "configmap", "owner", "-o", "jsonpath={.metadata.uid}")
	for _, name := range []string{"one", "two"} {
		in("create", "configmap", name, "--from-literal=colour=blue")
		in("patch", "configmap", name, "--type=merge", "-p", fmt.Sprintf(`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"owner","uid":%q}]}}`, uid))
	}
	in("delete", "configmap", "owner")
	p.open("#/deletion/" + namespace + "/" + uid)
	if p.lacks("edit", "#restore-now", "Your roles have no right to restore") {
		p.see("3 objects gone, 0 left")
		p.accessible("a deletion")
		return
	}
	p.see("3 objects would come back, 0 would be skipped.")
	in("create", "configmap", "two", "--from-literal=colour=green") // another object takes the name
	p.press("What restoring ConfigMap one alone would change")
	p.see("It would come back.")
	p.until("the reference that would be left out", `[...document.querySelectorAll("dialog[open] .diff del")].some(e => e.innerText.includes("owner"))`)
	p.until("the content as new lines", `[...document.querySelectorAll("dialog[open] .diff ins")].some(e => e.innerText.includes("colour: blue"))`)
	p.accessible("one object")
	p.shoot("one")
	p.reload()
	p.see("It would come back.")
	p.press("Restore it alone")
	p.until("the dialog closed", `!document.querySelector("dialog[open]")`)
	p.see("one object alone")
	p.see("1 restored")
	p.press("What restoring ConfigMap two alone would change")
	p.see("It would not come back: skipped.")
	p.until("what differs from the object that has the name", `(d => d && [...d.querySelectorAll("del")].some(e => e.innerText.includes("green")) && [...d.querySelectorAll("ins")].some(e => e.innerText.includes("blue")))(document.querySelector("dialog[open] .diff[role=region]"))`)
	p.shoot("conflict")
	p.press("Close")
	p.click("#restore-now")
	p.until("who restored it", fmt.Sprintf(`(t => t && t.rows.length === 3 && t.rows[1].innerText.includes(%q) && t.rows[1].innerText.includes("all of it"))(document.querySelector("#restores"))`, cmp.Or(p.user, "exeunt-admin")))
	p.see("Not all came back")
	p.press("Each object")
	p.see("skipped")
	p.accessible("restored")
	p.reload()
	p.until("the results again", `document.querySelectorAll("#restores, [data-name=two]").length >= 2`)
	p.shoot("restored")
	if got := in("get", "configmap", "owner", "two", "-o", "jsonpath={.items[*].data.colour}"); got != "red green" {
		p.t.Errorf("after the restore there are %q", got)
	}
}

// guarded: the guard of a namespace is set on its page, and holds a delete. Beside the reason are the remedies: it is called off; and
// then confirmed. With the guard's other setting, the user who asked is not offered to confirm.
func guarded(p *tab, namespace string) {
	s := p.server
	in := func(args ...string) string { p.t.Helper(); return must(p.t, s, append(args, "-n", namespace)...) }
	p.open("#/object/core/namespaces/-/" + namespace)
	p.see("Deletes are not held")
	if p.lacks("", "#guard-limit", "Guard") {
		must(p.t, s, "annotate", "namespace", namespace, "lifecycle.exeunt.dev/max-cascade=1")
	} else {
		p.fill("#guard-limit", "1")
		p.click("#guard-set")
	}
	p.until("the limit", `document.querySelector("#guard")?.innerText.includes("more than 1 object waits until it is confirmed.")`)
	p.accessible("the guard of a namespace")
	p.shoot("set")
	in("create", "configmap", "owner")
	uid := in("get", "configmap", "owner", "-o", "jsonpath={.metadata.uid}")
	in("create", "configmap", "one")
	in("patch", "configmap", "one", "--type=merge", "-p", fmt.Sprintf(`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"owner","uid":%q}]}}`, uid))
	p.open("#/deletion/" + namespace + "/" + uid + "/plan")
	p.see("The guard will hold this delete")
	if p.lacks("edit", "#delete-now", "You may read this plan, and may not delete it") {
		in("delete", "configmap", "owner", "--wait=false")
	} else {
		p.click("#delete-now")
	}
	p.see("waits to be confirmed")
	p.accessible("held")
	p.shoot("held")
	p.reload()
	if p.lacks("", "Confirm", "Your roles have no right to confirm it.") {
		p.lacks("edit", "Call it off", "waits to be confirmed")
		in("annotate", "configmap", "owner", "lifecycle.exeunt.dev/confirm-cascade=2")
		p.see("2 objects gone, 0 left")
		return
	}
	p.press("Call it off")
	p.see("A plan: nothing of it has been deleted")
	if at := in("get", "configmap", "owner", "-o", "jsonpath={.metadata.deletionTimestamp}"); at != "" {
		p.t.Errorf("the object is still being deleted, since %s", at)
	}
	p.click("#delete-now")
	p.press("Confirm: 2 objects may go")
	p.see("Deleted ConfigMap owner")
	p.see("confirmed by exeunt-admin")
	p.see("2 objects gone, 0 left")

	p.open("#/object/core/namespaces/-/" + namespace)
	p.click("#guard-other")
	p.click("#guard-set")
	p.see("waits until it is confirmed, by another user than the one who asked for it.")
	p.open("#/deletion/" + namespace + "/" + must(p.t, s, "get", "namespace", namespace, "-o", "jsonpath={.metadata.uid}") + "/plan")
	p.see("A plan: nothing of it has been deleted")
	p.typed(namespace)
	p.click("#delete-now")
	p.see("You asked for this delete, so another user must confirm it.")
	p.until("no button that would be refused", `![...document.querySelectorAll("main button")].some(e => e.innerText.startsWith("Confirm"))`)
	p.shoot("another")
	p.press("Call it off")
	p.see("A plan: nothing of it has been deleted")
	p.open("#/object/core/namespaces/-/" + namespace)
	p.fill("#guard-limit", "0")
	p.click("#guard-other")
	p.click("#guard-set")
	p.see("Deletes are not held")
	if got := must(p.t, s, "get", "namespace", namespace, "-o", `jsonpath={.metadata.annotations.lifecycle\.exeunt\.dev/max-cascade},{.metadata.annotations.lifecycle\.exeunt\.dev/confirm-by}`); got != "0," {
		p.t.Errorf("the namespace's guard is %q", got)
	}
}

// typed types the name of what goes, if the page asks for it because so much goes with it.
func (p *tab) typed(name string) {
	p.t.Helper()
	p.until("the plan", `document.querySelector("#delete-now:enabled, #confirm-name")`)
	var asks bool
	if p.eval(`!!document.querySelector("#confirm-name")`, &asks); asks {
		p.write("#confirm-name", name)
	}
}

// edited: the YAML of an object is changed. The page shows what the server would make of it, and which manager it takes
// fields from, before it saves; a draft survives a reload.
func edited(p *tab, namespace string) {
	s := p.server
	in := func(args ...string) string { p.t.Helper(); return must(p.t, s, append(args, "-n", namespace)...) }
	in("create", "configmap", "paint", "--from-literal=colour=red", "--from-literal=poem=one\ntwo\n")
	uid := in("get", "configmap", "paint", "-o", "jsonpath={.metadata.uid}")
	p.open("#/object/core/configmaps/" + namespace + "/paint")
	p.see("colour: red")
	if p.lacks("edit", "#edit", "YAML") {
		p.open("#/object/core/configmaps/" + namespace + "/paint?edit=yes")
		p.lacks("edit", "#apply", "colour: red")
		return
	}
	p.press("Edit…")
	text := func(lines string) string {
		return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: paint\n  namespace: %s\n  uid: %s\ndata:\n%s", namespace, uid, lines)
	}
	p.fill("#yaml", text("  colour: blue # sky"))
	p.reload()
	p.until("the draft", `document.querySelector("#yaml")?.value.includes("# sky")`)
	p.expect("status of 409")
	p.click("#look")
	p.until("the conflict", `document.querySelector("#conflicts")?.innerText.includes(".data.colour") && document.querySelector("#conflicts").innerText.includes("kubectl-create")`)
	p.accessible("a conflict")
	p.shoot("conflict")
	p.click("#force")
	changed := `[...document.querySelectorAll(".diff del")].map(e => e.innerText.trim()).join() === "-   colour: red" && [...document.querySelectorAll(".diff ins")].map(e => e.innerText.trim()).join() === "+   colour: blue"`
	p.until("what would change", changed)
	p.accessible("the change")
	p.shoot("change")
	p.click("#apply")
	p.see("Saved: it has version")
	if got := in("get", "configmap", "paint", "-o", "jsonpath={.data.colour},{.data.poem}"); got != "blue,one\ntwo\n" {
		p.t.Errorf("the object has %q", got)
	}
	p.press("Edit…")
	p.fill("#yaml", text("  colour: blue"))
	p.click("#look")
	p.see("Replace removes it")
	p.click("input[value=replace]")
	p.click("#look")
	p.until("the line that would go", `document.querySelector(".diff del")?.innerText.includes("poem")`)
	in("label", "configmap", "paint", "by=another")
	p.click("#apply")
	p.see("the object has been modified")
	p.click("#look")
	p.until("the label that would go too", `[...document.querySelectorAll(".diff del")].some(e => e.innerText.includes("by: another"))`)
	p.click("#apply")
	p.see("Saved: it has version")
	if got := in("get", "configmap", "paint", "-o", "jsonpath={.data}"); got != `{"colour":"blue"}` {
		p.t.Errorf("the object has %s", got)
	}
}

// found: Ctrl-K finds an object by a part of its name, a namespace, and every action of the page.
func found(p *tab, namespace string) {
	s := p.server
	for _, name := range []string{"needle-one", "needle-two"} {
		must(p.t, s, "create", "configmap", name, "-n", namespace)
	}
	control := func(text string) {
		p.t.Helper()
		p.until("the page to listen", `document.title.endsWith("· Exeunt")`)
		p.run(input.DispatchKeyEvent(input.KeyRawDown).WithKey("k").WithModifiers(input.ModifierCtrl), input.DispatchKeyEvent(input.KeyUp).WithKey("k"))
		p.until("the field", `document.activeElement.matches(".search input")`)
		p.keys(text)
	}
	option := func(text string) string {
		return fmt.Sprintf(`[...document.querySelectorAll("[role=option]")].find(e => e.innerText.includes(%q))`, text)
	}
	choose := func(text string) {
		p.t.Helper()
		p.until("the option "+text, option(text))
		if !p.keyboard {
			p.eval(option(text)+".click()", nil)
			return
		}
		for range 30 {
			var there bool
			if p.eval(fmt.Sprintf(`%s?.ariaSelected === "true"`, option(text)), &there); there {
				p.keys("\r")
				return
			}
			p.keys(kb.ArrowDown)
		}
		p.t.Fatalf("the arrows do not lead to %s", text)
	}
	p.open("#/now")
	control("")
	choose("Go to Objects")
	p.until("the kinds", `location.hash.startsWith("#/objects")`)
	if p.role == "" { // others may not list namespaces
		control(namespace)
		choose("Namespace " + namespace)
	}
	p.until("the namespace", fmt.Sprintf(`document.querySelector(".namespace").value === %q`, namespace))
	control("cm/dle-t")
	p.until("the part of a name", option("needle-two"))
	p.accessible("palette")
	p.shoot("palette")
	p.keys("\r")
	p.until("the object", fmt.Sprintf(`location.hash.startsWith("#/object/core/configmaps/%s/needle-two")`, namespace))
	p.see("data")
	if p.lacks("edit", "#edit", "YAML") {
		control("delete")
		choose("What would a delete remove?")
	} else {
		control("edit")
		choose("Edit its YAML…")
		p.until("the editor", `document.querySelector("#yaml")`)
		control("delete")
		choose("Delete…")
	}
	p.see("A plan: nothing of it has been deleted")
	control("all namesp")
	choose("All namespaces")
	p.until("all namespaces", `document.querySelector(".namespace").value === ""`)
}

// many: a table is sorted and shows the chosen columns; some of its objects are chosen and deleted with one plan, which counts what
// several of them own once. All of it is in the address.
func many(p *tab, namespace string) {
	s := p.server
	in := func(args ...string) string { p.t.Helper(); return must(p.t, s, append(args, "-n", namespace)...) }
	uid := map[string]string{}
	for _, name := range []string{"a1", "a2", "a10", "shared", "below"} {
		in("create", "configmap", name, "--from-literal=k=v")
		uid[name] = in("get", "configmap", name, "-o", "jsonpath={.metadata.uid}")
	}
	own := func(name string, owners ...string) {
		p.t.Helper()
		var references []string
		for _, o := range owners {
			references = append(references, fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","name":%q,"uid":%q}`, o, uid[o]))
		}
		in("patch", "configmap", name, "--type=merge", "-p", fmt.Sprintf(`{"metadata":{"ownerReferences":[%s]}}`, strings.Join(references, ",")))
	}
	own("shared", "a1", "a2")
	own("below", "shared")
	p.open("#/objects/core/configmaps?ns=" + namespace)
	names := func(want string) {
		p.t.Helper()
		p.until("the rows "+want, fmt.Sprintf(`[...document.querySelectorAll(".virtual tbody tr a")].map(e => e.innerText).join(" ") === %q`, want))
	}
	names("a1 a10 a2 below kube-root-ca.crt shared")
	p.press("Name")
	names("a1 a2 a10 below kube-root-ca.crt shared")
	p.press("Name ▲")
	names("shared kube-root-ca.crt below a10 a2 a1")
	p.press("Columns")
	p.click(".menu label:last-child input")
	p.until("a column less", `![...document.querySelectorAll("th")].some(e => e.innerText === "Age")`)
	p.press("Columns")
	p.reload()
	names("shared kube-root-ca.crt below a10 a2 a1")
	p.until("a column less", `![...document.querySelectorAll("th")].some(e => e.innerText === "Age")`)
	if p.lacks("edit", "[aria-label='Choose a1']", "a10") {
		return
	}
	if p.keyboard {
		p.eval(`document.activeElement.blur(); 0`, nil)
		for _, key := range []string{"j", "j", "j", "j", "j", "x", "j", "x"} {
			p.key(key)
		}
	} else {
		p.click("input[aria-label='Choose a1']")
		p.click("input[aria-label='Choose a2']")
	}
	p.see("2 objects chosen")
	p.accessible("chosen rows")
	p.shoot("chosen")
	p.press("Delete them…")
	p.see("Delete 2 objects of ConfigMap")
	p.see("4 objects will go, 0 dependents stay")
	p.accessible("one plan")
	p.shoot("plan")
	p.reload()
	p.click("#delete-now")
	p.until("both gone", `document.querySelectorAll("#chosen .state.gone").length === 2`)
	p.shoot("gone")
	harness.Until(p.t, "what they owned gone", func() error {
		if left := in("get", "configmaps", "-o", "jsonpath={.items[*].metadata.name}"); left != "a10 kube-root-ca.crt" {
			return fmt.Errorf("%s", left)
		}
		return nil
	})
	p.press("Its deletion")
	p.see("Deleted ConfigMap a")
	p.open("#/now?ns=")
	p.reload()
}
