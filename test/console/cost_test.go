package console

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/chromedp"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/test/harness"
)

// wire counts what a browser asks for and gets.
type wire struct {
	mu    sync.Mutex
	urls  []string
	bytes float64
}

// count begins to count.
func (p *tab) count() *wire {
	p.t.Helper()
	w := &wire{}
	chromedp.ListenTarget(p.ctx, func(event any) {
		w.mu.Lock()
		defer w.mu.Unlock()
		switch e := event.(type) {
		case *network.EventRequestWillBeSent:
			w.urls = append(w.urls, e.Request.URL)
		case *network.EventLoadingFinished:
			w.bytes += e.EncodedDataLength
		}
	})
	p.run(network.Enable())
	return w
}

// of returns the requests that have a text, and forgets all.
func (w *wire) of(text string) (found []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, url := range w.urls {
		if strings.Contains(url, text) {
			found = append(found, url)
		}
	}
	w.urls = nil
	return found
}

// measure returns how long scripts have run, and the time, in seconds.
func (p *tab) measure() (script, now float64) {
	p.t.Helper()
	p.run(performance.Enable(), chromedp.ActionFunc(func(ctx context.Context) error {
		metrics, err := performance.GetMetrics().Do(ctx)
		for _, m := range metrics {
			switch m.Name {
			case "ScriptDuration":
				script = m.Value
			case "Timestamp":
				now = m.Value
			}
		}
		return err
	}))
	return script, now
}

// TestCosts: the first page is at most 150,000 bytes over the wire, a page of a list is one request, and the time that scripts take
// for each second of a busy deletion is logged: this test does not assert times.
func TestCosts(t *testing.T) {
	many := 30_000
	if testing.Short() {
		many = 300
	}
	s := harness.Start(t, harness.SQLite)
	client := fast(t, s.Config()).CoreV1().ConfigMaps("default")
	p := openTab(t, s)
	w := p.count()
	p.signIn()
	p.until("all of the first page", `document.querySelectorAll(".queue").length === 4 && document.querySelector("#create-shop")`)
	w.mu.Lock()
	t.Logf("the first page: %d requests, %.0f bytes", len(w.urls), w.bytes)
	if w.bytes == 0 || w.bytes > 150_000 {
		t.Errorf("the first page is %.0f bytes over the wire", w.bytes)
	}
	w.mu.Unlock()
	for _, at := range []string{"#/now", "#/deletion/default/UID", "#/objects/core/configmaps?ns=default"} {
		name := strings.Trim(strings.NewReplacer("#", "", "/", "", "?", "", "=", "").Replace(strings.ToLower(at)), "-")
		root, err := client.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		group, ctx := errgroup.WithContext(t.Context())
		group.SetLimit(32)
		for i := range many {
			group.Go(func() error {
				_, err := client.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
					Name: fmt.Sprintf("%s-%05d", name, i), Labels: map[string]string{"of": name}, OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: root.Name, UID: root.UID}},
				}}, metav1.CreateOptions{})
				return err
			})
		}
		if err := group.Wait(); err != nil {
			t.Fatal(err)
		}
		p.open(strings.Replace(at, "UID", string(root.UID)+"/plan", 1))
		if strings.Contains(at, "configmaps") {
			p.until("a table", `document.querySelectorAll(".virtual tbody tr").length > 20`)
			w.of("")
			p.until("two pages", `(b => { b.scrollTop = b.scrollHeight; return Number(b.querySelector("table").getAttribute("aria-rowcount")) > 250; })(document.querySelector(".virtual"))`)
			var rows int
			p.eval(`Number(document.querySelector(".virtual table").getAttribute("aria-rowcount"))`, &rows)
			if asked := w.of("/configmaps"); len(asked) > (rows+249)/250 {
				t.Errorf("%d rows took %d requests: %v", rows, len(asked), asked)
			}
		} else {
			p.until("the page", `document.querySelector("h1") && !document.querySelector(".loading")`)
		}
		script, now := p.measure()
		if err := client.Delete(t.Context(), root.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		harness.Until(t, "the end of the deletion", func() error {
			left, err := client.List(t.Context(), metav1.ListOptions{Limit: 1, LabelSelector: "of=" + name})
			if err == nil && len(left.Items) > 0 {
				err = fmt.Errorf("%s is there", left.Items[0].Name)
			}
			return err
		})
		scriptThen, then := p.measure()
		t.Logf("%s: %d objects leave in %.1f s, scripts run %.0f ms: %.1f ms a second; %d requests", at, many, then-now, 1000*(scriptThen-script), 1000*(scriptThen-script)/(then-now), len(w.of("/console/")))
	}
}
