package console

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"golang.org/x/sync/errgroup"

	"github.com/exeunt/exeunt/test/harness"
)

// watches counts in the page what it asks for, and ends its watches after a second in place of five minutes.
const watches = `window.asked = []; window.answer = window.answer || fetch;
	window.fetch = (to, o) => { asked.push(String(to)); return answer(String(to).replace("timeoutSeconds=300", "timeoutSeconds=1"), o); }; 0`

// asks waits until the page has sent some more requests with a text.
func (p *tab) asks(text string, more int) {
	p.t.Helper()
	var before int
	count := fmt.Sprintf("asked.filter(a => a.includes(%q)).length", text)
	p.eval(count, &before)
	p.until(fmt.Sprintf("%d requests with %s", more, text), fmt.Sprintf("%s >= %d", count, before+more))
}

// TestTables: a table has the server's numbers and rows at every moment: also of what changed beyond the rows that are loaded, when
// its watch ends, and of kinds that cannot be watched. What the user mistypes is asked for once.
func TestTables(t *testing.T) {
	const made = 600
	s := harness.Start(t, harness.SQLite)
	client := fast(t, s.Config())
	maps := client.CoreV1().ConfigMaps("many")
	must(t, s, "create", "namespace", "many")
	create := func(name string, owners ...metav1.OwnerReference) {
		t.Helper()
		if _, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: owners}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(32)
	for i := range made {
		group.Go(func() error {
			_, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c-%03d", i)}}, metav1.CreateOptions{})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	p := openTab(t, s)
	p.signIn()
	p.eval(watches, nil)

	// Rows that are not loaded yet change. Their page is of the time of the first one.
	p.open("#/objects/core/configmaps?ns=many")
	p.see("601 objects in many; 250 are loaded, more when you scroll")
	must(t, s, "delete", "configmap", "c-400", "-n", "many")
	p.see("600 objects in many; 250 are loaded, more when you scroll")
	create("c-400-later")
	p.see("601 objects in many; 250 are loaded, more when you scroll")
	p.until("all rows, by scrolling", `(b => { b.scrollTop = b.scrollHeight; return b.querySelector("table").getAttribute("aria-rowcount") === "601"; })(document.querySelector(".virtual"))`)
	p.until("the rows of now", `(b => { b.scrollTop = 395 * 29; const names = [...b.querySelectorAll("tbody a")].map(a => a.innerText); return names.includes("c-399") && names.includes("c-400-later") && names.includes("c-401") && !names.includes("c-400"); })(document.querySelector(".virtual"))`)

	// The watch ends, and the next one goes on there.
	p.asks("watch=true", 2)
	p.until("the same place in all rows", `(b => b.scrollTop === 395 * 29 && b.querySelector("table").getAttribute("aria-rowcount") === "601")(document.querySelector(".virtual"))`)
	create("c-999")
	p.until("what was created since", `document.querySelector(".virtual table").getAttribute("aria-rowcount") === "602"`)

	// A selector that the server does not understand.
	p.expect("status of 400")
	p.open("#/objects/core/configmaps?ns=many&labels=" + "a%3D%3D%3Db")
	p.see("This did not work.")
	p.asks("/api/v1/namespaces?", 2)
	var refused int
	if p.eval(`asked.filter(a => a.includes("labelSelector")).length`, &refused); refused != 1 {
		t.Errorf("the page asked %d times for what the server does not understand", refused)
	}

	// Views have no watch. A row leads to the deletion that it is about.
	for _, view := range []string{"cascades", "archivedobjects"} {
		p.open("#/objects/lifecycle.exeunt.dev/" + view)
		p.see("1 object in many")
		p.asks("/"+view, 2)
		p.accessible(view)
		p.until("no error", `!document.querySelector("main .problem")`)
		p.click(".virtual tbody a")
		p.see("Deleted ConfigMap c-400")
		if view == "archivedobjects" {
			p.see("Restore ConfigMap c-400 alone")
		}
	}
	must(t, s, "exeunt", "restore", "configmap/c-400", "-n", "many")
	p.open("#/objects/lifecycle.exeunt.dev/restores")
	p.see("1 object")
	p.click(".virtual tbody a")
	p.see("kind: Restore")
	p.asks("/restores/", 1)
	p.until("no plan and no edit, which the server would refuse", `!document.querySelector("main .problem, #edit") && ![...document.querySelectorAll("main a.button")].length`)

	// The numbers of the kinds stay those of the server.
	p.open("#/objects?ns=many")
	number := `[...document.querySelectorAll(".kinds a")].find(a => a.innerText.startsWith("ConfigMap"))?.querySelector(".number").innerText`
	p.until("the number", number+` === "603"`)
	create("c-more")
	p.until("the number of now", number+` === "604"`)

	// An owner that does not exist is no error; a name may have a comma.
	must(t, s, "exeunt", "gc", "pause", "--reason", "test")
	create("dangles", metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "nobody", UID: "00000000-0000-0000-0000-000000000001"})
	p.open("#/objects/core/configmaps?ns=many&show=dangling")
	p.see("1 of 605 objects in many")
	p.see("dangles")
	if _, err := client.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "a,b"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	p.open("#/objects/rbac.authorization.k8s.io/clusterroles?q=a%2Cb")
	p.click("input[aria-label='Choose a,b']")
	p.see("1 object chosen")
	p.press("Delete them…")
	p.see("Delete 1 object of ClusterRole")

	// What was typed into an editor does not outlive the session: it may be a Secret.
	p.open("#/object/core/configmaps/many/c-999?edit=yes")
	p.write("#yaml", "# ")
	p.until("a draft", `sessionStorage.length === 1`)
	p.press("Sign out")
	p.see("You are signed out.")
	p.until("no draft", `sessionStorage.length === 0`)

	p.signIn()
	p.expect("status of 404")
	p.open("#/registry/no/where")
	p.see("There is no repository no/where.")
}

// TestManyHold: what holds a deletion and what ended is counted and in order, also where the server names a part. In the picture of a
// namespace an object hangs on its owner, and the window has the name of its page.
func TestManyHold(t *testing.T) {
	s := harness.Start(t, harness.SQLite)
	client := fast(t, s.Config())
	must(t, s, "create", "namespace", "ends")
	for i := range 12 {
		o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("held-%d", i), Finalizers: []string{"example.com/one", "example.com/two"}}}
		if _, err := client.CoreV1().ConfigMaps("ends").Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	in := func(args ...string) string { t.Helper(); return must(t, s, append(args, "-n", "family")...) }
	must(t, s, "create", "namespace", "family")
	in("create", "configmap", "owner")
	uid := in("get", "configmap", "owner", "-o", "jsonpath={.metadata.uid}")
	for _, name := range []string{"one", "two", "three"} {
		in("create", "configmap", name)
		in("patch", "configmap", name, "--type=merge", "-p", fmt.Sprintf(`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"owner","uid":%q}]}}`, uid))
	}
	p := openTab(t, s)
	p.signIn()
	p.open("#/object/core/namespaces/-/family")
	p.until("one line to each object", `(n => n > 4 && document.querySelectorAll(".edge").length === n - 1)(document.querySelectorAll(".node").length)`)
	p.open("#/object/core/namespaces/-/default")
	p.see("the server refuses that: this namespace may not be deleted")
	p.open("#/object/core/configmaps/default/kube-root-ca.crt")
	p.see("Nothing owns it, and it owns nothing.")

	ends := must(t, s, "get", "namespace", "ends", "-o", "jsonpath={.metadata.uid}")
	must(t, s, "delete", "namespace", "ends", "--wait=false")
	p.open("#/deletion/ends/" + ends)
	p.see("at least 10 more that hold it")
	p.until("what left", `[...document.querySelectorAll("main tbody tr")].some(r => r.innerText.includes("ServiceAccount default"))`)
	must(t, s, "patch", "configmap", "held-7", "-n", "ends", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	p.until("what left since", `[...document.querySelectorAll("main tbody tr")].some(r => r.innerText.includes("held-7"))`)
	p.until("the name of the page", `document.title === "Deleting Namespace ends, and what leaves with it · Exeunt"`)
	p.open("#/object/core/namespaces/-/ends")
	p.until("names of conditions that break between words", `[...document.querySelectorAll(".facts th")].some(e => e.innerText === "NamespaceFinalizersRemaining" && e.querySelector("wbr"))`)
	// One waits and has removed nothing, and one is over.
	must(t, s, "annotate", "namespace", "family", "lifecycle.exeunt.dev/max-cascade=1")
	in("delete", "configmap", "owner", "--wait=false")
	in("create", "configmap", "last")
	in("delete", "configmap", "last")
	p.open("#/now")
	p.until("the last deletions, the newest first", `(r => r && r.innerText.includes("ConfigMap last"))([...document.querySelectorAll("tr")].find(r => r.innerText.includes("Look or restore")))`)
	p.open("#/archive")
	p.until("as many deletions as rows", `document.querySelectorAll("main tbody tr").length === 2 && document.querySelector(".sub").innerText === "2 deletions, until they expire"`)
	p.write("input[aria-label=Filter]", strings.ToLower("LAST"))
	p.see("1 of 2 deletions")
}
