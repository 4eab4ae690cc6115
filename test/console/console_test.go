// Package console tests the web page in a real browser against the real server. Each test
// is one task of a user.
package console

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/exeunt/exeunt/test/crossplane"
	"github.com/exeunt/exeunt/test/harness"
)

// TestSignIn: a page without a session shows nothing; a wrong token and a used link are
// refused; a sign-out ends the session on the server. A user of an identity provider signs in
// there.
func TestSignIn(t *testing.T) {
	s := harness.Start(t, harness.SQLite, newProvider(t).flags(t)...)
	p := openTab(t, s)
	p.expect("status of 401") // the subject of this test
	link := p.link()
	page, _, _ := strings.Cut(link, "#")
	p.run(navigate(page))
	p.see("Sign in")
	p.accessible("sign-in")
	p.shoot("sign-in")
	p.write("#token", "not-a-token")
	p.press("Sign in")
	p.see("does not know this token")

	p.run(navigate("about:blank"), navigate(link))
	p.see("Sign out")
	p.see("exeunt-admin")
	var address string
	p.eval("location.href", &address)
	if strings.Contains(address, "signin") {
		t.Errorf("the code is still in the address: %s", address)
	}
	var cookies string
	p.eval("document.cookie", &cookies)
	if cookies != "" {
		t.Errorf("scripts can read the cookie: %q", cookies)
	}

	other := openTab(t, s)
	other.expect("status of 401")
	other.run(navigate(link))
	other.see("was used already")

	p.press("Sign out")
	p.see("You are signed out.")
	var code int
	p.run(evaluateAsync(`fetch("/console/api/api", {headers: {"X-Exeunt-Console": "1"}}).then(r => r.status)`, &code))
	if code != 401 {
		t.Errorf("after the sign-out the API answers %d", code)
	}

	p.expect("status of 403")  // no role names Jane yet
	p.open("#/access?ns=shop") // the address that a colleague sent
	p.press("Sign in with your identity provider")
	p.press("I am Jane") // a page of another site
	p.see("jane@example.com")
	p.until("the page that was asked for", `location.hash === "#/access?ns=shop" && document.querySelector("h1").innerText !== "Now"`)
	var groups string
	p.run(evaluateAsync(`fetch("/console/session", {headers: {"X-Exeunt-Console": "1"}}).then(r => r.json()).then(u => u.groups.join(" "))`, &groups))
	if groups != "sso:ops system:authenticated" {
		t.Errorf("the session's user is in %q", groups)
	}
}

// TestShopLeaves: a user creates the example shop, previews its deletion, deletes it,
// finds what holds it, releases that, and restores it, all from the page; the API agrees
// at each step.
func TestShopLeaves(t *testing.T) {
	s := harness.Start(t, harness.SQLite)
	p := openTab(t, s)
	p.signIn()
	p.see("Nothing has been deleted yet")
	p.accessible("now, empty")
	p.click("#create-shop")
	p.see("Ownership")
	// Seven objects, and the other owner of one of them.
	p.until("a graph of eight objects", `document.querySelectorAll(".node").length === 8`)
	p.accessible("object")
	p.press("■ 1 held")
	p.until("what is held, and the way to it", `document.querySelectorAll(".node").length === 2 && document.querySelector(".node.held").textContent.includes("ledger")`)
	p.reload()
	p.until("the same", `document.querySelectorAll(".node").length === 2`)
	p.press("■ 1 held")
	p.until("all again", `document.querySelectorAll(".node").length === 8`)
	p.press("As a table")
	p.see("ConfigMap ledger")
	p.see("Deployment web, ConfigMap shared")

	p.press("Delete…")
	p.see("What happens: background")
	p.click(`input[value="Foreground"]`)
	p.see("What happens: foreground")
	p.until("cards of one shape", `new Set([...document.querySelectorAll(".policy")].map(e => getComputedStyle(e).alignItems + e.offsetHeight)).size === 1`)
	p.samePlan(s)
	p.accessible("delete")
	p.shoot("delete")
	p.click("#delete-now")
	p.see("4 objects gone, 2 left")
	p.shoot("progress")
	uid := field(t, s.HTTP().Get(t, "/apis/apps/v1/namespaces/shop/deployments/web"), "metadata.uid")

	p.open("#/now")
	p.until("the cascade under way", `document.querySelector("tr.cascade .left-count")?.innerText === "2"`)
	p.see("finalizer backup.example.com/snapshot has not been removed")
	p.accessible("now")
	p.shoot("now")
	p.open("#/why/" + uid)
	p.see("BlockingDependents")
	p.accessible("why")
	p.shoot("why")
	p.press("Remove this finalizer…")
	p.write("#reason", "the backup system is gone")
	p.click("#remove-finalizer")
	p.see("Deployment web is gone")
	if answer := s.HTTP().Do(t, harness.Request{Method: "GET", Path: "/apis/apps/v1/namespaces/shop/deployments/web"}); answer.Code != 404 {
		t.Errorf("the deployment answers %d", answer.Code)
	}

	p.open("#/archive")
	p.see("Deployment web")
	p.accessible("archive")
	p.open("#/archive/" + uid)
	p.see("6 objects would come back")
	p.shoot("archive")
	p.click("#restore-now")
	p.see("6 objects restored")
	list := s.HTTP().Get(t, "/api/v1/namespaces/shop/pods")
	if n := strings.Count(string(list.Body), `"name":"web-1-`); n < 3 {
		t.Errorf("the pods are not back: %s", list.Body)
	}
	p.open("#/object/apps/deployments/shop/web")
	p.until("the graph again", `document.querySelectorAll(".node").length >= 6`)
}

// field reads a string field of an answer.
func field(t *testing.T, a harness.Answer, path string) string {
	t.Helper()
	text := strings.Trim(a.Field(path), `"`)
	if text == "" {
		t.Fatalf("no %s in %s", path, a.Body)
	}
	return text
}

// samePlan compares the plan on the page with exeunt preview.
func (p *tab) samePlan(s *harness.Server) {
	p.t.Helper()
	result := s.Exeunt(p.t, "preview", "deployment/web", "-n", "shop", "--cascade=foreground", "-o", "json")
	var preview struct {
		Status struct {
			Items []struct{ Kind, Name, Action string }
		}
	}
	if err := json.Unmarshal([]byte(result.Stdout), &preview); err != nil {
		p.t.Fatalf("preview: %v %s%s", err, result.Stdout, result.Stderr)
	}
	want := map[string]string{}
	for _, i := range preview.Status.Items {
		want[i.Name] = i.Action
	}
	var shown map[string]string
	p.eval(`Object.fromEntries([...document.querySelectorAll("table.plan tr[data-name]")].map(r => [r.dataset.name, r.dataset.action]))`, &shown)
	if len(want) != 7 || fmt.Sprint(shown) != fmt.Sprint(want) {
		p.t.Errorf("the page plans %v, exeunt preview %v", shown, want)
	}
}

// TestPauseAndGuard: a user pauses the collector with a reason and resumes it, and
// confirms a cascade that the guard holds on the page Why.
func TestPauseAndGuard(t *testing.T) {
	s := harness.Start(t, harness.SQLite, "--max-cascade", "3")
	p := openTab(t, s)
	p.signIn()
	p.click("#create-shop")
	p.see("Ownership")
	p.open("#/now")
	p.press("Pause…")
	p.until("the field of the reason", `document.querySelector("dialog[open] input")`)
	p.write("dialog[open] input", "a rehearsal")
	p.press("Pause")
	p.see("The collector is paused")
	if body := string(s.HTTP().Get(t, "/exeunt/gc").Body); !strings.Contains(body, "a rehearsal") {
		t.Errorf("the server says %s", body)
	}
	p.press("Resume")
	p.until("resumed", `!document.body.innerText.includes("The collector is paused")`)

	p.open("#/delete/apps/deployments/shop/web")
	p.see("The guard will hold this delete")
	p.click("#delete-now")
	p.see("What holds it")
	p.press("All reasons")
	p.see("waits to be confirmed")
	p.press("Confirm: 6 objects may go")
	p.until("confirmed", `!document.body.innerText.includes("waits to be confirmed")`)
	harness.Until(t, "the replica set gone", func() error {
		if a := s.HTTP().Do(t, harness.Request{Method: "GET", Path: "/apis/apps/v1/namespaces/shop/replicasets/web-1"}); a.Code != 404 {
			return fmt.Errorf("answers %d", a.Code)
		}
		return nil
	})
}

// TestRegistry: the tags of a repository are one request. They are sorted by push and pull, one is opened with its layers, some are
// deleted with one plan, and one is undeleted.
func TestRegistry(t *testing.T) {
	s := harness.Start(t, harness.SQLite)
	image, err := random.Image(1000, 2)
	if err != nil {
		t.Fatal(err)
	}
	loggedIn := remote.WithAuth(&authn.Basic{Username: harness.RegistryUser, Password: s.RegistryToken()})
	reference := func(path string) name.Reference {
		t.Helper()
		ref, err := name.ParseReference(s.Registry()+"/"+path, name.Insecure)
		if err != nil {
			t.Fatal(err)
		}
		return ref
	}
	push := func(path string, image v1.Image) {
		t.Helper()
		if err := remote.Write(reference(path), image, loggedIn); err != nil {
			t.Fatal(err)
		}
	}
	const tags = 45
	for i := range tags {
		push(fmt.Sprintf("shop/many:t%02d", i), image)
	}
	for _, tag := range []string{"v2", "v1"} {
		push("shop/web:"+tag, image)
	}
	own, err := random.Image(5000, 1)
	if err != nil {
		t.Fatal(err)
	}
	push("shop/web:v10", own)
	if _, err := remote.Get(reference("shop/web:v10"), loggedIn); err != nil {
		t.Fatal(err)
	}
	p := openTab(t, s)
	p.signIn()
	p.open("#/registry/shop/many")
	p.see("45 tags")
	var requests int
	if p.eval(`performance.getEntriesByType("resource").filter(e => e.name.includes("/v2/")).length`, &requests); requests != 1 {
		t.Errorf("the page of %d tags made %d requests to the registry", tags, requests)
	}
	p.press("t00")
	p.until("the image in view beside its tags", `(r => r && r.top > 0 && r.bottom < innerHeight)(document.querySelector("#layers")?.getBoundingClientRect())`)
	p.write("input[aria-label='Filter tags']", "t07")
	p.see("1 tag of 45")
	p.shootAll("many")

	p.open("#/registry")
	p.see("were given back today")
	p.press("shop/web")
	names := func(want string) {
		t.Helper()
		p.until("the tags "+want, fmt.Sprintf(`[...document.querySelectorAll("tr[data-tag]")].map(e => e.dataset.tag).join(" ") === %q`, want))
	}
	names("v1 v2 v10")
	p.press("Pushed")
	names("v2 v1 v10")
	p.until("the time of the pull", `!document.querySelector("tr[data-tag=v10]").innerText.includes("not seen")`)
	p.press("Pulled")
	p.press("Pulled ▲")
	p.until("the pulled one first", `document.querySelector("tr[data-tag]").dataset.tag === "v10"`)
	p.reload()
	p.until("the pulled one first", `document.querySelector("tr[data-tag]")?.dataset.tag === "v10"`)
	p.accessible("repository")
	p.press("v10")
	p.see("docker pull " + s.Registry() + "/shop/web:v10")
	p.until("layers that go and their sizes", `document.querySelectorAll("#layers tbody tr").length === 2 && document.querySelectorAll("#layers .state.leaving").length === 2`)
	p.press("v10")
	p.press("v2")
	p.until("layers that another tag keeps", `document.querySelectorAll("#layers .state.stays").length === 3`)
	p.accessible("image")
	p.shootAll("repository")

	p.press("Delete tag…")
	p.see("Nothing else goes: other tags, lists or repositories use all of it.") // v1 is the same image
	p.press("Cancel")
	p.click("input[aria-label='Choose v10']")
	p.click("input[aria-label='Choose v1']")
	p.see("2 tags chosen")
	p.click("#delete-many")
	p.see("24h later")
	p.see("Then 1 manifest and 2 blobs go")
	p.accessible("the plan of two tags")
	p.shootAll("delete")
	p.press("Delete 2 tags")
	p.see("Deleted, and still there")
	names("v2")
	p.press("Undelete v10")
	names("v2 v10") // neither was pulled since
	if _, err := remote.Get(reference("shop/web:v10"), loggedIn); err != nil {
		t.Errorf("the tag from outside: %v", err)
	}
	if _, err := remote.Get(reference("shop/web:v1"), loggedIn); err == nil {
		t.Error("the deleted tag can be pulled")
	}
}

// TestMachines: the page shows each phase of a resource, on the way up and down.
func TestMachines(t *testing.T) {
	s := harness.Start(t, harness.SQLite)
	ctx, cancel := context.WithCancel(context.Background())
	double, err := crossplane.Start(ctx, s.Config())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); double.Wait() })
	apply := func(text string) {
		t.Helper()
		if r := s.KubectlCommand(t, harness.Command{Args: []string{"apply", "-f", "-"}, Stdin: text}); r.Code != 0 {
			t.Fatalf("kubectl apply: %s%s", r.Stdout, r.Stderr)
		}
	}
	apply(crossplane.Definitions())
	if r := s.Kubectl(t, "wait", "crd", "--all", "--for=condition=Established", "--timeout=60s"); r.Code != 0 {
		t.Fatal(r.Stderr)
	}
	if r := s.Kubectl(t, "apply", "-f", "../../examples/shop/blueprint.yaml"); r.Code != 0 {
		t.Fatal(r.Stderr)
	}
	p := openTab(t, s)
	p.signIn()
	p.open("#/machines")
	p.see("There are none")
	apply(`{apiVersion: provisioning.exeunt.dev/v1alpha1, kind: ProvisionedResource, metadata: {name: edge, namespace: default},
spec: {blueprintRef: {name: machine, version: 1.0.0}, credentialRef: {name: cloud}, parameters: {size: 1}}}`)
	at := func(phase string) {
		t.Helper()
		p.until("the phase "+phase, fmt.Sprintf(`document.querySelector(".rail .here span")?.innerText === %q`, phase))
	}
	at("Ready")
	p.see("Nodes of the mesh")
	p.accessible("machines")
	p.shoot("machines")
	double.Set(crossplane.Behaviour{MuteNodes: true})
	if r := s.Kubectl(t, "delete", "provisionedresource", "edge", "--wait=false"); r.Code != 0 {
		t.Fatal(r.Stderr)
	}
	at("Deregistering")
	double.Set(crossplane.Behaviour{})
	p.see("There are none")
}

const hostile = `<img src=x onerror="window.hacked=1">`

// TestHostileNames: the page shows names and messages of other users as text and never
// runs them as code.
func TestHostileNames(t *testing.T) {
	s := harness.Start(t, harness.SQLite)
	body, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": "hostile", "annotations": map[string]string{"note": hostile}, "finalizers": []string{"example.com/x"}}, "data": map[string]string{"k": hostile}})
	if err != nil {
		t.Fatal(err)
	}
	object := s.HTTP().Do(t, harness.Request{Method: "POST", Path: "/api/v1/namespaces/default/configmaps", ContentType: "application/json", Body: string(body)})
	event, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "Event", "metadata": map[string]any{"name": "hostile"}, "message": hostile, "reason": hostile, "type": "Warning",
		"involvedObject": map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "hostile", "namespace": "default", "uid": field(t, object, "metadata.uid")}})
	if err != nil {
		t.Fatal(err)
	}
	if a := s.HTTP().Do(t, harness.Request{Method: "POST", Path: "/api/v1/namespaces/default/events", ContentType: "application/json", Body: string(event)}); a.Code != 201 {
		t.Fatalf("event: %d %s", a.Code, a.Body)
	}
	p := openTab(t, s)
	p.signIn()
	p.open("#/object/core/configmaps/default/hostile")
	p.see(hostile)
	p.until("the event", fmt.Sprintf(`[...document.querySelectorAll("td")].some(td => td.innerText === %q)`, hostile))
	p.open("#/object/core/configmaps/default/" + "%3Cimg%20src%3Dx%20onerror%3D%22window.hacked%3D1%22%3E")
	p.expect("status of 404") // an object of that name does not exist
	p.see("does not exist")
	var hacked bool
	p.eval("window.hacked === 1 || document.querySelectorAll('img').length > 0", &hacked)
	if hacked {
		t.Error("the page ran code from an object")
	}
}

// TestSecondPerson: a user with the role view in one namespace sees only that namespace,
// can change nothing, and is signed out when the user is removed.
func TestSecondPerson(t *testing.T) {
	s := harness.Start(t, harness.SQLite)
	run := func(args ...string) string {
		t.Helper()
		var r harness.Result
		if args[0] == "exeunt" {
			r = s.Exeunt(t, args[1:]...)
		} else {
			r = s.Kubectl(t, args...)
		}
		if r.Code != 0 {
			t.Fatalf("%v: %s%s", args, r.Stdout, r.Stderr)
		}
		return r.Stdout
	}
	run("create", "namespace", "shop")
	run("create", "configmap", "prices", "-n", "shop")
	run("create", "configmap", "hidden", "-n", "default")
	for _, name := range []string{"gone-1", "gone-2"} {
		run("create", "configmap", name, "-n", "shop")
		run("delete", "configmap", name, "-n", "shop")
	}
	run("create", "rolebinding", "jane", "--clusterrole=view", "--user=jane", "-n", "shop")
	p := openTab(t, s)
	p.expect("status of 401") // when the user is removed. Nothing else: the page does not ask for what is refused
	p.signInAs(addUser(t, s, "jane"))
	p.see("You may not see this.")
	p.see("Choose a namespace above")
	p.shootAll("now")
	p.write("input.namespace", "shop\r")
	p.see("Nothing is being deleted.")
	p.see("gone-2")
	p.until("no number that is not known", `!document.body.innerText.includes("in the archive")`)
	p.open("#/object/core/configmaps/shop/prices")
	p.see("Ownership")
	p.press("What would a delete remove?")
	p.see("You may read this plan, and may not delete it")
	p.until("no button", `!document.querySelector("#delete-now")`)
	p.shootAll("plan")
	p.open("#/object/core/configmaps/default/hidden")
	p.see("cannot get resource \"configmaps\"")
	p.open("#/delete/core/secrets/shop/hidden")
	p.see("cannot get resource \"secrets\"")
	p.until("no promise", `!document.body.innerText.includes("Loading")`)
	p.open("#/objects/core/secrets")
	p.see("cannot list resource \"secrets\"")
	p.until("no claim", `!document.body.innerText.includes("There are none") && !document.body.innerText.includes("0 objects")`)
	for hash, shows := range map[string]string{
		"#/objects": "in namespace shop", "#/object/core/configmaps/shop/": "prices", "#/archive": "2 deletions", "#/registry": "There are no repositories",
		"#/machines": "You may not see this.", "#/deletion/shop/no-such-deletion": "There is no such deletion", "#/why/no-such-object": "is gone", "#/now": "Nothing is being deleted.",
	} {
		p.open(hash)
		p.see(shows)
	}
	p.open("#/access")
	p.see("You are jane")
	p.accessible("access")
	run("get", "configmap", "prices", "-n", "shop")

	run("exeunt", "user", "remove", "jane")
	p.open("#/objects/core/configmaps")
	p.see("Your session has ended.")
}

// TestKeyboard: / searches, j and k move the selection, Enter opens, ? shows help.
func TestKeyboard(t *testing.T) {
	s := harness.Start(t, harness.SQLite)
	p := openTab(t, s)
	p.signIn()
	p.until("the page to listen", `document.title === "Now · Exeunt"`) // set after the keys are
	p.eval(`document.activeElement.blur(); 0`, nil)
	p.key("/")
	p.until("the search", `document.activeElement.matches(".search input")`)
	p.keys("ns")
	p.until("a kind", `document.querySelector(".found")?.innerText.includes("Namespace")`)
	p.keys("\r")
	p.until("the namespaces", `location.hash === "#/objects/core/namespaces" && document.querySelector(".virtual tbody")?.innerText.includes("kube-public")`)
	p.eval(`document.activeElement.blur(); 0`, nil)
	p.key("j")
	p.key("j")
	p.key("k")
	p.until("a chosen row", `document.querySelector("tr.selected")?.innerText.includes("default")`)
	p.key("Enter")
	p.until("the namespace", `location.hash === "#/object/core/namespaces/-/default"`)
	p.eval(`document.activeElement.blur(); 0`, nil)
	p.key("?")
	p.until("the help", `document.querySelector("dialog[open]")?.innerText.includes("next, previous row")`)
}

// TestOldObject: an object whose version the log has left long ago is shown without an error, and kept up to date.
func TestOldObject(t *testing.T) {
	s := harness.Start(t, harness.SQLite)
	run := func(args ...string) {
		t.Helper()
		if r := s.Kubectl(t, args...); r.Code != 0 {
			t.Fatalf("%v: %s%s", args, r.Stdout, r.Stderr)
		}
	}
	run("create", "configmap", "old")
	run("create", "configmap", "newer")
	s.Kill()
	s.Query(`UPDATE revision SET compacted = current`)
	s.Start()
	p := openTab(t, s)
	p.signIn()
	p.eval(`window.wrong = false; new MutationObserver(() => { window.wrong ||= document.body.innerText.includes("too old") }).observe(document.body, {subtree: true, childList: true, characterData: true}); 0`, nil)
	p.open("#/object/core/configmaps/default/old")
	p.see("old")
	run("annotate", "configmap", "old", "note=seen-by-the-watch")
	p.see("seen-by-the-watch")
	var wrong bool
	if p.eval("window.wrong", &wrong); wrong {
		t.Error("the page said that the version is too old")
	}
}
