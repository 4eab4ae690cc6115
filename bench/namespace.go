package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// ownerLabel marks the namespaces that a benchmark made and may remove.
const ownerLabel = "bench.exeunt.dev/run"

// noArchive is the annotation that asks a server with an archive to keep no deleted
// objects of the namespace. Other servers ignore it.
const noArchive = `"lifecycle.exeunt.dev/archive-for":"0s"`

// settle is how long Cleanup waits for the removal of the namespace.
const settle = 30 * time.Second

// session is a prepared run: a checked configuration, open connections and the
// namespace.
type session struct {
	Config
	pool *pool
	path string // of the ConfigMaps
}

// open prepares a run. The workload closes the session's pool.
func open(ctx context.Context, config Config) (*session, error) {
	config = config.withDefaults()
	if err := config.check(); err != nil {
		return nil, err
	}
	p, err := openPool(config.REST, config.Connections)
	if err != nil {
		return nil, err
	}
	s := &session{Config: config, pool: p, path: collectionPath(config.Namespace)}
	if err := s.prepare(ctx); err != nil {
		p.close()
		return nil, err
	}
	return s, nil
}

// openSeeded is open for a workload that needs the objects.
func openSeeded(ctx context.Context, config Config) (*session, error) {
	s, err := open(ctx, config)
	if err != nil {
		return nil, err
	}
	if err := s.seed(ctx); err != nil {
		s.pool.close()
		return nil, err
	}
	return s, nil
}

func (s *session) prepare(ctx context.Context) error {
	if err := s.pool.connect(ctx); err != nil {
		return err
	}
	return ensureNamespace(ctx, s.pool.client(0), s.Namespace, noArchive)
}

// ensureNamespace makes the namespace or reuses that of an earlier run. It
// refuses a namespace that no benchmark made: the run would fill it, and
// Cleanup would remove it. annotations are members of a JSON object.
func ensureNamespace(ctx context.Context, c client, name, annotations string) error {
	ns, err := getNamespace(ctx, c, name)
	switch {
	case err != nil:
		return err
	case ns == nil:
		body := fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q,"labels":{%q:"true"},"annotations":{%s}}}`,
			name, ownerLabel, annotations)
		_, err := c.discard(ctx, http.MethodPost, "/api/v1/namespaces", "", writeHeader, &payload{pieces: [5]string{body}})
		if err != nil {
			return fmt.Errorf("make namespace: %w", err)
		}
		return nil
	case ns.Metadata.Labels[ownerLabel] == "":
		return fmt.Errorf("namespace %q exists and was not made by a benchmark: choose another", name)
	case ns.Status.Phase == "Terminating":
		return fmt.Errorf("namespace %q is still being removed: wait, or choose another", name)
	}
	return nil
}

type namespace struct {
	Metadata struct {
		Labels map[string]string `json:"labels"`
	} `json:"metadata"`
	Status struct {
		Phase string `json:"phase"`
	} `json:"status"`
}

// getNamespace returns nil if the namespace does not exist.
func getNamespace(ctx context.Context, c client, name string) (*namespace, error) {
	answer, err := c.get(ctx, "/api/v1/namespaces/"+name, "")
	if hasCode(err, http.StatusNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for namespace: %w", err)
	}
	ns := &namespace{}
	if err := json.Unmarshal(answer, ns); err != nil {
		return nil, fmt.Errorf("look for namespace %q: %w", name, err)
	}
	return ns, nil
}

// Cleanup removes what runs left behind: the ConfigMaps, then the namespaces. It
// does not touch a namespace that no benchmark made.
func Cleanup(ctx context.Context, config Config) error {
	config = config.withDefaults()
	if err := config.check(); err != nil {
		return err
	}
	p, err := openPool(config.REST, 1)
	if err != nil {
		return err
	}
	defer p.close()
	for _, name := range []string{config.Namespace, config.cascadeNamespace(), config.expiryNamespace()} {
		if err := removeNamespace(ctx, p.client(0), name); err != nil {
			return fmt.Errorf("clean up: %w", err)
		}
	}
	return nil
}

func removeNamespace(ctx context.Context, c client, name string) error {
	ns, err := getNamespace(ctx, c, name)
	if err != nil || ns == nil || ns.Metadata.Labels[ownerLabel] == "" {
		return err
	}
	if _, err := c.discard(ctx, http.MethodDelete, collectionPath(name), "", plainHeader, nil); err != nil {
		return err
	}
	_, err = c.discard(ctx, http.MethodDelete, "/api/v1/namespaces/"+name, "", plainHeader, nil)
	if err != nil && !hasCode(err, http.StatusNotFound) {
		return err
	}
	return awaitGone(ctx, c, name)
}

// awaitGone waits for the server to remove the namespace. A slow removal is not
// an error of the run.
func awaitGone(ctx context.Context, c client, name string) error {
	deadline := time.Now().Add(settle)
	for pause := 10 * time.Millisecond; time.Now().Before(deadline); pause = min(2*pause, time.Second) {
		ns, err := getNamespace(ctx, c, name)
		if err != nil || ns == nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
	return nil
}

// seed makes the objects that do not exist yet.
func (s *session) seed(ctx context.Context) error {
	if s.Seeded {
		return nil
	}
	t := s.onEach(ctx, func(c client, n int) (int64, error) {
		bytes, err := s.create(ctx, c, n)
		if hasCode(err, http.StatusConflict) {
			err = nil
		}
		return bytes, err
	})
	if t.errors > 0 {
		return fmt.Errorf("make objects: %d errors, the first: %w", t.errors, t.firstErr)
	}
	return ctx.Err()
}

// each runs work once for every client, concurrently, and adds up the tallies.
func (s *session) each(work func(worker int, c client, t *tally)) *tally {
	tallies := make([]tally, s.Clients)
	var group sync.WaitGroup
	for i := range tallies {
		group.Go(func() { work(i, s.pool.client(i), &tallies[i]) })
	}
	group.Wait()
	for i := range tallies[1:] {
		tallies[0].merge(&tallies[i+1])
	}
	return &tallies[0]
}

func hasCode(err error, code int) bool {
	var status *statusError
	return errors.As(err, &status) && status.code == code
}
