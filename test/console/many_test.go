package console

import (
	"context"
	"flag"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"golang.org/x/sync/errgroup"

	"github.com/exeunt/exeunt/test/harness"
)

var objects = flag.Int("objects", 20_000, "how many objects TestManyObjects makes in a namespace; of the first ones half leave in one cascade")

// TestManyObjects: the page stays responsive with many objects and a large cascade, and every story can be told among them. The
// test logs the longest task and the heap size, and does not assert them.
func TestManyObjects(t *testing.T) {
	if testing.Short() {
		*objects = 3000
	}
	s := harness.Start(t, harness.SQLite)
	client := fast(t, s.Config())
	ctx := t.Context()
	parent, err := client.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "parent"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	fill(ctx, t, func(ctx context.Context, i int) error {
		o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c-%05d", i)}}
		if i%2 == 0 { // every other one belongs to the parent
			o.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: parent.Name, UID: parent.UID}}
		}
		_, err := client.CoreV1().ConfigMaps("default").Create(ctx, o, metav1.CreateOptions{})
		return err
	})

	p := openTab(t, s)
	p.signIn()
	p.eval(`window.longest = 0; new PerformanceObserver(l => { for (const e of l.getEntries()) window.longest = Math.max(window.longest, e.duration); }).observe({type: "longtask"}); 0`, nil)
	p.open("#/objects/core/configmaps")
	p.until("a table", `document.querySelectorAll(".virtual tbody tr").length > 20`)
	var rows int
	p.until("four pages, by scrolling", `(b => { b.scrollTop = b.scrollHeight; return Number(b.querySelector("table").getAttribute("aria-rowcount")) >= 1000; })(document.querySelector(".virtual"))`)
	p.eval(`document.querySelectorAll(".virtual tbody tr").length`, &rows)
	if rows > 200 {
		t.Fatalf("%d rows are in the page: the list is not virtual", rows)
	}

	p.open("#/object/core/configmaps/default/parent")
	p.until("a folded graph", `document.querySelectorAll(".node").length > 1 && document.querySelectorAll(".node").length <= 200`)
	p.until("honest counts", fmt.Sprintf(`[...document.querySelectorAll(".node text")].some(e => e.textContent === %q)`, thousands(*objects/2)+" objects"))
	p.open("#/delete/core/configmaps/default/parent")
	p.see("to confirm")
	p.write("#confirm-name", "parent")
	p.click("#delete-now")
	p.see("All of it is gone")
	p.until("all counted", fmt.Sprintf(`document.querySelector("#progress").innerText.includes(%q)`, thousands(*objects/2+1)+" objects gone, 0 left"))
	var longest, heap float64
	p.eval("window.longest", &longest)
	p.eval("performance.memory.usedJSHeapSize / 1048576", &heap)
	p.open("#/archive/" + string(parent.UID))
	p.see("ConfigMap parent, and what left with it")
	p.see(thousands(*objects/2+1) + " archived objects, the last 100")
	p.click("#restore-now")
	p.see(thousands(*objects/2+1) + " objects restored")
	for n, told := range stories {
		if !testing.Short() || told.name == "palette" {
			p.hear(told, n%len(looks()), true)
		}
	}
	for n, role := range roles {
		if testing.Short() {
			break
		}
		q := openTabAs(t, s, role)
		for k, told := range stories {
			q.hear(told, (n+k)%len(looks()), true)
		}
	}
	t.Logf("longest task %.0f ms, heap %.0f MiB, %d objects", longest, heap, *objects)
}

// TestMoreThanAPage: lists of which the server gives 500 at a time are whole: the namespaces to choose from, and repositories,
// of which the page shows 5,000 and says how many there are besides.
func TestMoreThanAPage(t *testing.T) {
	const namespaces, repositories = 601, 5003
	s := harness.Start(t, harness.SQLite)
	client := fast(t, s.Config())
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(64)
	for i := range namespaces {
		group.Go(func() error {
			_, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("team-%03d", i)}}, metav1.CreateOptions{})
			return err
		})
	}
	for i := range repositories {
		group.Go(func() error {
			repository := fmt.Sprintf(`{"apiVersion":"registry.exeunt.dev/v1","kind":"Repository","metadata":{"name":"r%04d"}}`, i)
			return client.RESTClient().Post().AbsPath("/apis/registry.exeunt.dev/v1/namespaces/default/repositories").Body([]byte(repository)).Do(ctx).Error()
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	p := openTab(t, s)
	p.signIn()
	p.open("#/registry")
	p.see("5,000 repositories shown")
	p.see("r4999")
	p.see("3 more are not shown")
	p.open("#/objects/registry.exeunt.dev/repositories")
	p.see("5,003 objects; 250 are loaded, more when you scroll")
	p.key("/")
	p.keys("repositories/none")
	p.until("how far the search goes", `[...document.querySelectorAll("[role=option]")].some(e => e.innerText.includes("the first 5,000 were searched"))`)
	p.until("the last namespace to choose", `[...document.querySelectorAll("select.namespace option")].some(e => e.value === "team-600")`)
}

// thousands writes a number as the page does.
func thousands(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%d,%03d", n/1000, n%1000)
}

func fast(t *testing.T, c *rest.Config) *kubernetes.Clientset {
	t.Helper()
	c.QPS = -1
	client, err := kubernetes.NewForConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// fill creates the objects, many at a time.
func fill(ctx context.Context, t *testing.T, create func(ctx context.Context, i int) error) {
	t.Helper()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(64)
	for i := range *objects {
		group.Go(func() error { return create(ctx, i) })
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
}

// surround fills a story's namespace with ConfigMaps; for the stories that name all rows of their table, with Secrets.
func surround(p *tab, told story, namespace string) {
	p.t.Helper()
	client := fast(p.t, p.server.Config())
	fill(p.t.Context(), p.t, func(ctx context.Context, i int) (err error) {
		meta := metav1.ObjectMeta{Name: fmt.Sprintf("other-%05d", i)}
		if told.name == "many" || told.name == "history" {
			_, err = client.CoreV1().Secrets(namespace).Create(ctx, &corev1.Secret{ObjectMeta: meta}, metav1.CreateOptions{})
		} else {
			_, err = client.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: meta}, metav1.CreateOptions{})
		}
		return err
	})
}
