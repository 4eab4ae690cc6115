package robust_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// informer is client-go's, on one replica, through its link.
type informer struct {
	cache.SharedIndexInformer

	mu       sync.Mutex
	seen     informerCounts // guarded by mu
	problems []string       // guarded by mu
}

// informerCounts are an informer's requests.
type informerCounts struct {
	watches int // that were answered
	lists   int // and watches that begin with a list
	// excuses: what client-go itself answers with a new list. It continues from its last version
	// only after a watch that had an event or lasted for a second, and after a refused connection.
	excuses int
}

// A watch is brief if client-go may list again after it. Its own limit is a second; one that
// begins with a list may have broken off before the list was complete.
const (
	brief     = 1100 * time.Millisecond
	briefFull = 15 * time.Second
)

func newInformer(t *testing.T, config *rest.Config, base string) *informer {
	t.Helper()
	i := &informer{}
	config.Host = base
	config.NextProtos = []string{"http/1.1"}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &counting{next, i} })
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	source := cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "configmaps", namespace, fields.Everything())
	i.SharedIndexInformer = cache.NewSharedIndexInformer(source, &corev1.ConfigMap{}, 0, nil)
	return i
}

func (i *informer) run(ctx context.Context) { i.RunWithContext(ctx) }

// counting counts the requests of an informer.
type counting struct {
	next http.RoundTripper
	to   *informer
}

func (c *counting) RoundTrip(r *http.Request) (*http.Response, error) {
	query := r.URL.Query()
	watch := query.Get("watch") != ""
	full := !watch || query.Get("sendInitialEvents") == "true"
	began := time.Now()
	answer, err := c.next.RoundTrip(r)
	switch {
	case err != nil:
		c.to.note(func(n *informerCounts) { n.excuses++ })
		return nil, err
	case answer.StatusCode == http.StatusGone:
		c.to.complain("%s answers 410", r.URL.RawQuery)
	case answer.StatusCode != http.StatusOK:
		c.to.note(func(n *informerCounts) { n.excuses++ })
	}
	if answer.StatusCode == http.StatusOK {
		c.to.note(func(n *informerCounts) {
			if watch {
				n.watches++
			}
			if full {
				n.lists++
			}
		})
		limit := brief
		if full {
			limit = briefFull
		}
		answer.Body = &watchBody{ReadCloser: answer.Body, to: c.to, until: began.Add(limit)}
	}
	return answer, nil
}

// watchBody notices a body after which client-go lists again: a watch that ended early, and
// a list that broke off.
type watchBody struct {
	io.ReadCloser
	to    *informer
	until time.Time
	once  sync.Once
}

func (b *watchBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.ended()
	}
	return n, err
}

func (b *watchBody) Close() error {
	b.ended()
	return b.ReadCloser.Close()
}

func (b *watchBody) ended() {
	b.once.Do(func() {
		if time.Now().Before(b.until) {
			b.to.note(func(n *informerCounts) { n.excuses++ })
		}
	})
}

func (i *informer) note(change func(*informerCounts)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	change(&i.seen)
}

func (i *informer) complain(format string, args ...any) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.problems) < 20 {
		i.problems = append(i.problems, fmt.Sprintf(format, args...))
	}
}

func (i *informer) counts() informerCounts {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.seen
}

// has reports whether the informer knows an object.
func (i *informer) has(name string) error {
	_, found, err := i.GetStore().GetByKey(namespace + "/" + name)
	if err == nil && !found {
		err = fmt.Errorf("%s is missing", name)
	}
	return err
}

// check: the informer has what a LIST has, and it listed again only where client-go does so
// by itself.
func (i *informer) check(t *testing.T, replica int, from api) {
	t.Helper()
	for _, problem := range i.problems {
		t.Errorf("informer of replica %d: %s", replica, problem)
	}
	if n := i.counts(); n.lists > 1+n.excuses {
		t.Errorf("the informer of replica %d listed %d times, and only %d requests gave it a reason", replica, n.lists, n.excuses)
	}
	var list struct{ Items []meta }
	a := from.do(t.Context(), "GET", collection, "")
	if err := json.Unmarshal(a.body, &list); err != nil {
		t.Errorf("list: %d: %v", a.code, err)
		return
	}
	if n := len(i.GetStore().ListKeys()); n != len(list.Items) {
		t.Errorf("the informer of replica %d has %d objects, a LIST %d", replica, n, len(list.Items))
	}
	for _, m := range list.Items {
		o, found, err := i.GetStore().GetByKey(namespace + "/" + m.Metadata.Name)
		if err != nil || !found || o.(*corev1.ConfigMap).ResourceVersion != m.Metadata.ResourceVersion {
			t.Errorf("the informer of replica %d does not have %s at version %s", replica, m.Metadata.Name, m.Metadata.ResourceVersion)
		}
	}
}
