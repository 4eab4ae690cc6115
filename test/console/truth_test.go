package console

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/exeunt/exeunt/test/harness"
)

const (
	setsOfTree = 20
	podsOfSet  = 20
	wholeTree  = 1 + setsOfTree + setsOfTree*podsOfSet
)

// plant creates a tree of ConfigMaps: a root, what it owns, and what that owns.
func plant(ctx context.Context, t *testing.T, client *kubernetes.Clientset, name string) *corev1.ConfigMap {
	t.Helper()
	create := func(ctx context.Context, name string, owner *corev1.ConfigMap) (*corev1.ConfigMap, error) {
		o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if owner != nil {
			o.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}}
		}
		return client.CoreV1().ConfigMaps("default").Create(ctx, o, metav1.CreateOptions{})
	}
	root, err := create(ctx, name, nil)
	if err != nil {
		t.Fatal(err)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(setsOfTree)
	for i := range setsOfTree {
		group.Go(func() error {
			set, err := create(ctx, fmt.Sprintf("%s-%d", name, i), root)
			for j := 0; j < podsOfSet && err == nil; j++ {
				_, err = create(ctx, fmt.Sprintf("%s-%d-%d", name, i, j), set)
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	return root
}

// must runs kubectl, or exeunt if that is the first argument.
func must(t *testing.T, s *harness.Server, args ...string) string {
	t.Helper()
	run := s.Kubectl
	if args[0] == "exeunt" {
		run, args = s.Exeunt, args[1:]
	}
	r := run(t, args...)
	if r.Code != 0 {
		t.Fatalf("%v: %s%s", args, r.Stdout, r.Stderr)
	}
	return r.Stdout
}

// size sets the size of the window.
func (p *tab) size(width, height int64) {
	p.t.Helper()
	p.run(emulation.SetDeviceMetricsOverride(width, height, 1, false))
}

// dark chooses the colours.
func (p *tab) dark(on bool) {
	p.t.Helper()
	value := "light"
	if on {
		value = "dark"
	}
	p.run(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: value}}))
}

// shootAll takes pictures of a page in three widths, light and dark.
func (p *tab) shootAll(name string) {
	p.t.Helper()
	if os.Getenv("EXEUNT_TEST_PICTURES") == "" {
		return
	}
	for _, width := range []int64{1440, 1024, 390} {
		p.size(width, 900)
		for _, dark := range []bool{false, true} {
			p.dark(dark)
			p.shoot(fmt.Sprintf("%s-%d-%v", name, width, dark))
		}
	}
	p.size(1440, 900)
	p.dark(false)
}

// reload loads the page again.
func (p *tab) reload() {
	p.t.Helper()
	p.run(chromedp.Reload())
	p.see("Sign out")
}

// address is where the page is.
func (p *tab) address() (hash string) {
	p.t.Helper()
	p.eval("location.hash", &hash)
	return hash
}

// TestDeletionPage: a deletion has one address, from the plan to the archive. Its numbers are those of the whole cascade, it
// survives a reload, and it shows what another client deletes.
func TestDeletionPage(t *testing.T) {
	s := harness.Start(t, harness.SQLite)
	client := fast(t, s.Config())
	root, other := plant(t.Context(), t, client, "tree"), must(t, s, "create", "configmap", "other", "-o", "jsonpath={.metadata.uid}")
	must(t, s, "exeunt", "gc", "pause", "--reason", "test")
	p := openTab(t, s)
	p.signIn()

	// The graph has honest counts, its object in view, and no invisible stops.
	p.open("#/object/core/configmaps/default/tree")
	p.until("the folded graph", fmt.Sprintf(`[...document.querySelectorAll(".node text")].map(e => e.textContent).join().includes("%d objects")`, setsOfTree*podsOfSet))
	p.until("the other box", fmt.Sprintf(`[...document.querySelectorAll(".node text")].some(e => e.textContent === "%d objects")`, setsOfTree))
	p.until("the object in view", `(() => { const c = document.querySelector(".canvas").getBoundingClientRect(), n = document.querySelector(".node.focus").getBoundingClientRect(); return n.top >= c.top && n.bottom <= c.bottom && n.left >= c.left && n.right <= c.right; })()`)
	p.until("no invisible stop", `![...document.querySelectorAll(".hidden a, .hidden button, .hidden input")].length`)
	p.shootAll("object")

	// A box opens, by the mouse and by keyboard; a map shows what the window does not, and Fit shows all.
	p.eval(`[...document.querySelectorAll(".node.many")].find(e => e.textContent.includes("400 objects")).dispatchEvent(new MouseEvent("click", {bubbles: true})); 0`, nil)
	p.until("the first objects of the box, and how many more", `document.querySelectorAll(".node").length === 43 && document.querySelector(".canvas").innerHTML.includes("360 more")`)
	p.until("a map", `document.querySelector(".minimap .window")`)
	p.shootAll("open")
	p.reload()
	p.until("the box is still open", `document.querySelectorAll(".node").length === 43`)
	p.press("Fit")
	p.until("all of it in view", `(c => c.scrollHeight <= c.clientHeight + 1 && c.scrollWidth <= c.clientWidth + 1 && !document.querySelector(".minimap"))(document.querySelector(".canvas"))`)
	p.shoot("fit")
	p.press("Close all boxes")
	p.press("As a table")
	p.press("Open: ConfigMap, 20 objects")
	p.see("ConfigMap tree-19")
	p.accessible("the graph as a table")
	p.press("Close all boxes")
	p.press("As a picture")

	// The plan: the button is before what goes, and the address survives the delete.
	p.press("Delete…")
	p.see(fmt.Sprintf("%d objects will go", wholeTree))
	p.see("nothing of it has been deleted")
	var before int
	p.eval(`[...document.querySelectorAll("main a, main button, main input")].findIndex(e => e.id === "confirm-name")`, &before)
	if before < 0 || before > 10 {
		t.Errorf("%d stops are before the confirmation", before)
	}
	p.shootAll("plan")
	p.write("#confirm-name", "tree")
	p.click("#delete-now")
	exact := func(gone, left int) {
		t.Helper()
		objects := "objects"
		if gone == 1 {
			objects = "object"
		}
		p.until("exact numbers", fmt.Sprintf(`document.querySelector("#progress")?.innerText.includes("%d %s gone, %d left")`, gone, objects, left))
	}
	exact(1, wholeTree-1)
	p.see("Deleting ConfigMap tree")
	if want := "#/deletion/default/" + string(root.UID); p.address() != want {
		t.Errorf("the deletion is at %s, not at %s", p.address(), want)
	}
	p.reload()
	exact(1, wholeTree-1)
	p.see("resume it: exeunt gc resume")
	p.accessible("deletion")
	p.shootAll("running")
	for _, hash := range []string{"#/delete/core/configmaps/default/tree", "#/deletion/default/" + string(root.UID) + "/plan", "#/archive/" + string(root.UID)} {
		p.open("#/now")
		p.until("the number left", fmt.Sprintf(`document.querySelector(".left-count")?.innerText === "%d"`, wholeTree-1))
		p.open(hash)
		exact(1, wholeTree-1)
	}

	// Another client deletes what the page plans to.
	p.open("#/delete/core/configmaps/default/other")
	p.see("nothing of it has been deleted")
	must(t, s, "delete", "configmap", "other")
	exact(1, 0)
	p.see("Deleted ConfigMap other")
	if want := "#/deletion/default/" + other; p.address() != want {
		t.Errorf("the deletion is at %s, not at %s", p.address(), want)
	}

	// The server is restarted in the middle: the page goes on by itself, and is the same when it is read again.
	p.open("#/deletion/default/" + string(root.UID))
	exact(1, wholeTree-1)
	p.expect("net::ERR")
	s.Restart()
	second := openTab(t, s)
	second.expect("net::ERR")
	second.signIn()
	second.open("#/deletion/default/" + string(root.UID))
	second.until("the same numbers", fmt.Sprintf(`document.querySelector("#progress")?.innerText.includes("1 object gone, %d left")`, wholeTree-1))
	must(t, s, "exeunt", "gc", "resume")
	exact(wholeTree, 0)
	p.see("Deleted ConfigMap tree, and what left with it")
	p.see(fmt.Sprintf("%d archived objects, the last 100", wholeTree))
	p.press("Show more")
	p.see(fmt.Sprintf("%d archived objects, the last 200", wholeTree))
	p.see(fmt.Sprintf("%d objects would come back", wholeTree))
	p.click("#restore-now")
	p.see(fmt.Sprintf("%d objects restored", wholeTree))
	p.see("Restored ConfigMap tree")
	s.Restart()
	p.reload()
	p.see("Restored ConfigMap tree")
	p.see(fmt.Sprintf("%d objects restored, 0 skipped, 0 failed", wholeTree))
	p.shootAll("restored")

	// The restored object is deleted once more: that is another deletion.
	p.open("#/object/core/configmaps/default/tree")
	p.press("Delete…")
	p.write("#confirm-name", "tree")
	p.click("#delete-now")
	p.until("another address", fmt.Sprintf(`location.hash.startsWith("#/deletion/default/%s.")`, root.UID))
	exact(wholeTree, 0)
	p.see(fmt.Sprintf("%d objects would come back, 0 would be skipped.", wholeTree))

	// What was purged cannot come back, and the plan says so.
	must(t, s, "delete", "archivedobject", must(t, s, "get", "archivedobjects", "--field-selector=spec.name=tree-0-0", "-o", "jsonpath={.items[0].metadata.name}"))
	p.reload()
	p.see(fmt.Sprintf("%d objects would come back, 0 would be skipped, 1 would fail", wholeTree-1))
	p.see("1 object was purged from the archive")
}

// TestTotals: numbers of the pages are those of the API, also when there are more than a page reads.
func TestTotals(t *testing.T) {
	s := harness.Start(t, harness.SQLite)
	client := fast(t, s.Config())
	const deletions = 130
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(16)
	for i := range deletions {
		group.Go(func() error {
			maps, name := client.CoreV1().ConfigMaps("default"), fmt.Sprintf("c-%d", i)
			_, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
			if err == nil {
				err = maps.Delete(ctx, name, metav1.DeleteOptions{})
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	archived := strings.Count(must(t, s, "get", "archivedobjects", "-A", "-o", "name"), "\n")
	if got := strings.Count(must(t, s, "get", "cascades", "-A", "-o", "name"), "\n"); got != deletions || archived != deletions {
		t.Fatalf("kubectl lists %d cascades and %d archived objects", got, archived)
	}
	p := openTab(t, s)
	p.signIn()
	p.see(fmt.Sprintf("0 cascades under way; %d objects in the archive", archived))
	p.see("The last 100 deletions")
	p.shootAll("now")
	p.open("#/objects")
	counted := func(kind string) string {
		return fmt.Sprintf(`[...document.querySelectorAll(".kinds a")].some(a => a.querySelector(".name").innerText === %q && a.querySelector(".number").innerText === "%d")`, kind, deletions)
	}
	p.until("the cascades", counted("Cascade"))
	p.until("the archived objects", counted("ArchivedObject"))
	p.open("#/archive")
	p.see("100 deletions, and older ones")
	p.open("#/archive?q=kind") // a filter looks at values, and not at the names of fields
	p.see("None of the newest 100 matches the filter; there are older ones.")
	p.open("#/archive")
	p.see("100 deletions, and older ones")
	p.accessible("archive")
	p.eval(`document.activeElement.blur(); 0`, nil)
	p.key("j")
	p.until("a chosen row", `document.querySelector("tr.selected")`)
	p.click("#more")
	p.see(fmt.Sprintf("%d deletions, until they expire", deletions))
	p.eval(`document.activeElement.blur(); 0`, nil)
	p.key("Enter")
	p.see("Deleted ConfigMap c-")
}

// TestTour: what the page offers is there, what it says is so, at every width and by keyboard.
func TestTour(t *testing.T) {
	s := harness.Start(t, harness.SQLite)
	long := strings.Repeat("n", 59)
	for _, args := range [][]string{
		{"create", "namespace", long},
		{"create", "configmap", "web", "-n", long},
		{"create", "configmap", "lonely"},
		{"create", "configmap", "held"},
		{"patch", "configmap", "held", "--type=merge", "-p", `{"metadata":{"finalizers":["example.com/hold"]}}`},
		{"delete", "configmap", "held", "--wait=false"},
		{"create", "namespace", "ends"},
		{"create", "configmap", "last", "-n", "ends"},
		{"patch", "configmap", "last", "-n", "ends", "--type=merge", "-p", `{"metadata":{"finalizers":["example.com/hold"]}}`},
		{"delete", "namespace", "ends", "--wait=false"},
	} {
		must(t, s, args...)
	}
	p := openTab(t, s)
	p.signIn()

	// Search finds an object in any namespace, by kind and name or by its name alone.
	search := func(text string) {
		t.Helper()
		p.eval(`document.activeElement.blur(); 0`, nil)
		p.until("the page to listen", `document.title.endsWith("· Exeunt")`)
		p.key("/")
		p.until("the search", `document.activeElement.matches(".search input")`)
		p.keys(text + "\r")
	}
	search("cm/web")
	p.until("the object", fmt.Sprintf(`location.hash === "#/object/core/configmaps/%s/web"`, long))
	search("lonely")
	p.until("the object", `location.hash === "#/object/core/configmaps/default/lonely"`)
	p.open("#/now")
	search("onel") // a part of its name
	p.until("the object", `location.hash === "#/object/core/configmaps/default/lonely"`)
	search("cm/kube-root-ca.crt")
	p.until("those of all namespaces", `document.querySelectorAll(".found li").length > 1`)
	p.keys("x\r")
	p.see("No ConfigMap is named kube-root-ca.crtx in any namespace.")

	// What the server refuses is not offered.
	p.open("#/delete/core/namespaces/-/default")
	p.see("The server refuses this delete")
	p.until("no button", `!document.querySelector("#delete-now") && !document.body.innerText.includes("will go")`)
	p.shootAll("refused")

	// A long name of a namespace, a namespace that ends, rows of a table: at every width.
	p.open("#/object/core/namespaces/-/ends?ns=" + long)
	p.reload()
	inside := `(r => r.width > 0 && r.left >= 0 && r.right <= innerWidth)([...document.querySelectorAll(".who button")].pop().getBoundingClientRect())`
	for _, width := range []int64{1440, 1024, 390} {
		p.size(width, 900)
		p.until(fmt.Sprintf("Sign out in a window of %d", width), inside)
		p.until(fmt.Sprintf("a summary to read in a window of %d", width), `document.querySelectorAll(".facts td").length > 5 && [...document.querySelectorAll(".facts td")].every(e => e.getBoundingClientRect().width >= 150 && e.getBoundingClientRect().height < 400)`)
		p.until("no sideways scrolling", `document.documentElement.scrollWidth <= innerWidth`)
	}
	p.until("a small header", `document.querySelector(".bar").getBoundingClientRect().height < 225 && getComputedStyle(document.querySelector(".bar")).position !== "sticky"`)
	p.size(1440, 900)
	p.shootAll("terminating")
	p.run(chromedp.SetValue("select.namespace", "", chromedp.ByQuery), chromedp.Evaluate(`document.querySelector("select.namespace").dispatchEvent(new Event("change")); 0`, nil))
	p.open("#/objects/core/configmaps")
	p.reload()
	for _, width := range []int64{1440, 390} {
		p.size(width, 900)
		p.until("rows of one height", `document.querySelectorAll(".virtual tbody tr").length > 3 && [...document.querySelectorAll(".virtual tbody tr")].every(r => r.getBoundingClientRect().height === 29)`)
	}
	p.open("#/now")
	p.until("words in one piece", `(r => r && r.cells[0].getBoundingClientRect().width > 80)(document.querySelector("tr.cascade"))`)
	p.see("Files to remove")
	p.shootAll("now")
	p.size(1440, 900)
	p.open("#/archive")
	p.open("#/why/" + must(t, s, "get", "configmap", "held", "-o", "jsonpath={.metadata.uid}"))
	p.see("has not been removed")

	// The focus comes back from a dialog.
	p.eval(`document.querySelector("[aria-label='Keyboard shortcuts']").focus(); 0`, nil)
	p.keys("\r")
	p.until("the help", `document.querySelector("dialog[open]")`)
	p.keys(kb.Escape)
	p.until("the focus", `!document.querySelector("dialog[open]") && document.activeElement.ariaLabel === "Keyboard shortcuts"`)

	// A sign-in link works in an open tab, and its code does not stay in the address.
	p.eval(`window.same = true; 0`, nil)
	p.press("Sign out")
	p.see("You are signed out.")
	_, hash, _ := strings.Cut(p.link(), "#")
	p.open("#" + hash)
	p.see("Sign out")
	p.until("the same page without the code", `window.same && location.hash === "#/now" && !document.querySelector("#token")`)

	// The server stops: the page says so once, and does not claim to repeat what it does not.
	p.open("#/delete/core/configmaps/default/lonely")
	p.see("1 object will go")
	p.expect("net::ERR")
	s.Kill()
	p.see("The server does not answer.")
	p.click("#delete-now")
	p.see("look before you repeat it")
	p.press("Sign out")
	p.until("one banner, and an answer to each button", `document.querySelectorAll(".offline").length === 1 && document.querySelectorAll(".problem").length === 3`)
	p.shoot("down")
	s.Start()
	p.until("the server is back", `!document.querySelector(".offline")`)
}

// TestPaletteKeepsTheChoice: the option that the arrows chose stays chosen when the answer for what was typed comes after it.
func TestPaletteKeepsTheChoice(t *testing.T) {
	s := harness.Start(t, harness.SQLite)
	must(t, s, "create", "configmap", "colour")
	p := openTab(t, s)
	p.signIn()
	p.open("#/object/core/configmaps/default/colour")
	p.see("Delete…")
	p.eval(`window.answer = fetch; window.held = new Promise((go) => { window.go = go; });
		window.fetch = (to, o) => String(to).includes("/namespaces?") ? held.then(() => answer(to, o)) : answer(to, o); 0`, nil)
	p.run(input.DispatchKeyEvent(input.KeyRawDown).WithKey("k").WithModifiers(input.ModifierCtrl), input.DispatchKeyEvent(input.KeyUp).WithKey("k"))
	p.until("all actions", `document.querySelectorAll("[role=option]").length > 3`)
	p.keys("delete")
	chosen := `document.querySelector("[role=option][aria-selected=true]")?.innerText`
	p.keys(kb.ArrowDown)
	for range 30 {
		var text string
		if p.eval(chosen+` || ""`, &text); strings.Contains(text, "Delete…") {
			break
		}
		p.keys(kb.ArrowDown)
	}
	p.eval("go(), 0", nil)
	p.until("the list of what was typed", `[...document.querySelectorAll("[role=option]")].some(e => e.innerText.includes("of any kind with this name"))`)
	p.until("the same choice", chosen+`.includes("Delete…")`)
	p.keys("\r")
	p.see("A plan: nothing of it has been deleted")
}
