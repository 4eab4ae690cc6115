package attack_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/exeunt/exeunt/test/harness"
)

// TestIdleWatches opens 2,000 idle watches, 100 on each connection. All of them receive
// the next change.
func TestIdleWatches(t *testing.T) {
	const connections, each = 20, 100
	a := startTarget(t, harness.SQLite)
	before := a.memory(t)
	p := a.probe(t)
	from := a.http.Get(t, configMaps).Field("metadata.resourceVersion")
	url := "https://" + a.host + configMaps + "?watch=true&resourceVersion=" + strings.Trim(from, `"`)
	ctx, cancel := context.WithCancel(context.Background())
	var open, seen atomic.Int64
	turns := make(chan struct{}, 20) // many idle watches are the attack, not many handshakes
	var watches sync.WaitGroup
	for range connections {
		client, err := rest.HTTPClientFor(separate(a.Config()))
		if err != nil {
			t.Fatal(err)
		}
		for range each {
			turns <- struct{}{}
			watches.Go(func() {
				opened := false
				err := watchOne(ctx, client, url, func() { opened = true; open.Add(1); <-turns }, func() { seen.Add(1) })
				if err != nil && ctx.Err() == nil {
					t.Error(err)
				}
				if !opened {
					<-turns
				}
			})
		}
		t.Cleanup(client.CloseIdleConnections)
	}
	t.Cleanup(func() {
		cancel()
		watches.Wait()
	})
	counts(t, "all watches are open", &open, connections*each)
	a.create(t, configMaps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"seen-by-all"}}`)
	counts(t, "all watches see the change", &seen, connections*each)
	t.Logf("%d watches: %d MiB resident, %d before", connections*each, a.memory(t)>>20, before>>20)
	cancel()
	watches.Wait()
	p.end()
	a.awaitMemory(t, before)
}

// separate gives a client a connection of its own: clients with equal settings
// share one.
func separate(config *rest.Config) *rest.Config {
	config.Proxy = http.ProxyFromEnvironment
	return config
}

func counts(t *testing.T, what string, n *atomic.Int64, want int64) {
	t.Helper()
	harness.Within(t, time.Minute, what, func() error {
		if got := n.Load(); got != want {
			return fmt.Errorf("%d of %d", got, want)
		}
		return nil
	})
}

// watchOne calls open when the watch is open, and seen when it gets its first
// event.
func watchOne(ctx context.Context, client *http.Client, url string, open, seen func()) error {
	request, err := http.NewRequestWithContext(ctx, "GET", url, nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("watch: %s", answer.Status)
	}
	open()
	line, err := bufio.NewReader(answer.Body).ReadString('\n')
	if err == nil && strings.HasPrefix(line, `{"type":"ADDED"`) {
		seen()
	}
	<-ctx.Done()
	return nil
}

// TestExpensiveSelectors: one client asks for 1,500 watches with selectors of 500 terms, which no object matches. The server
// serves its share of them and refuses the others. What others write is answered as without them, and a watch as expensive of another client is
// served.
func TestExpensiveSelectors(t *testing.T) {
	const connections, each = 15, 100
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		a := newTarget(t, s)
		writes := 0
		median := func() time.Duration { // of the answers to 40 writes
			var all []time.Duration
			for range 40 {
				began := time.Now()
				a.create(t, configMaps, fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c-%d","labels":{"a":"b"}}}`, writes))
				all = append(all, time.Since(began))
				writes++
			}
			slices.Sort(all)
			return all[len(all)/2]
		}
		median()
		before := median()
		terms := "a notin (b"
		for i := range 499 {
			terms += fmt.Sprintf(",value-%d", i)
		}
		query := configMaps + "?watch=true&labelSelector=" + url.QueryEscape(terms+")")
		ctx, cancel := context.WithCancel(context.Background())
		var served, refused atomic.Int64
		var watches sync.WaitGroup
		for range connections {
			config := separate(a.Config())
			config.Impersonate = rest.ImpersonationConfig{UserName: "eve", Groups: []string{"system:masters"}}
			client, err := rest.HTTPClientFor(config)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(client.CloseIdleConnections)
			if _, err := fetch(ctx, client, "https://"+a.host+"/readyz"); err != nil { // one connection for all
				t.Fatal(err)
			}
			for range each {
				watches.Go(func() {
					err := watchOne(ctx, client, "https://"+a.host+query, func() { served.Add(1) }, func() {})
					if err != nil && strings.Contains(err.Error(), "429") {
						refused.Add(1)
					} else if err != nil && ctx.Err() == nil {
						t.Error(err)
					}
				})
			}
		}
		t.Cleanup(func() {
			cancel()
			watches.Wait()
		})
		harness.Within(t, time.Minute, "all watches are answered", func() error {
			if n := served.Load() + refused.Load(); n != connections*each {
				return fmt.Errorf("%d of %d", n, connections*each)
			}
			return nil
		})
		// A selector of 500 terms takes 4 of 600 places, of which a tenth is for others.
		if n := served.Load(); n < 75 || n > 600/4 {
			t.Errorf("%d watches are served", n)
		}
		if answer := a.http.Get(t, query+"&timeoutSeconds=1"); answer.Code != http.StatusOK {
			t.Errorf("a watch of another client: %d %.300s", answer.Code, answer.Body)
		}
		during := median()
		t.Logf("%d watches; the median write takes %v, %v before", served.Load(), during, before)
		if during > 20*before {
			t.Errorf("the median write takes %v, %v before", during, before)
		}
	})
}

// TestManyClients runs 200 clients, each on its own connection, that create, read, list
// and delete without a pause.
func TestManyClients(t *testing.T) {
	const clients, rounds = 200, 5
	a := startTarget(t, harness.SQLite)
	before := a.memory(t)
	p := a.probe(t)
	var work sync.WaitGroup
	failures := make(chan error, clients)
	for i := range clients {
		client := a.Server.HTTP()
		work.Go(func() {
			for round := range rounds {
				if err := oneRound(client, fmt.Sprintf("client-%d-%d", i, round)); err != nil {
					failures <- err
					return
				}
			}
		})
	}
	work.Wait()
	close(failures)
	for err := range failures {
		t.Error(err)
	}
	p.end()
	a.awaitMemory(t, before)
}

func oneRound(client *harness.HTTP, name string) error {
	steps := []struct {
		request harness.Request
		code    int
	}{
		{harness.Request{Method: "POST", Path: configMaps, Body: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + name + `"}}`}, http.StatusCreated},
		{harness.Request{Method: "GET", Path: configMaps + "/" + name}, http.StatusOK},
		{harness.Request{Method: "GET", Path: configMaps + "?limit=20"}, http.StatusOK},
		{harness.Request{Method: "DELETE", Path: configMaps + "/" + name}, http.StatusOK},
	}
	for _, step := range steps {
		answer, err := client.Try(step.request)
		if err != nil {
			return err
		}
		if answer.Code != step.code {
			return fmt.Errorf("%s %s: %d %.200s", step.request.Method, step.request.Path, answer.Code, answer.Body)
		}
	}
	return nil
}
