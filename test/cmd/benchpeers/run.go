package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/exeunt/exeunt/bench"
)

// The contenders, in the order of their turns.
const (
	kubernetes   = "Kubernetes"
	distribution = "distribution"
	onSQLite     = "SQLite"
	onPostgres   = "PostgreSQL"
)

// runner measures all contenders.
type runner struct {
	exeunt, bin, postgres string
	rounds, objects       int
	registryOnly, apiOnly bool
	dir                   string
}

// running is a server under load.
type running struct {
	kubeconfig string // empty means a registry only
	registry   string // URL; empty if there is none
	stop       func() error
}

func (r *runner) run(ctx context.Context) (*table, error) {
	t := &table{}
	for round := range r.rounds {
		for _, name := range []string{kubernetes, distribution, onSQLite, onPostgres} {
			if name == onPostgres && r.postgres == "" || name == kubernetes && r.registryOnly || name == distribution && r.apiOnly {
				continue
			}
			fmt.Fprintf(os.Stderr, "benchpeers: round %d of %d, %s, %s\n", round+1, r.rounds, name, time.Now().Format(time.TimeOnly))
			if err := r.turn(ctx, t, name, round); err != nil {
				return nil, fmt.Errorf("%s, round %d: %w", name, round+1, err)
			}
		}
	}
	return t, nil
}

// turn starts a fresh server, measures it and stops it.
func (r *runner) turn(ctx context.Context, t *table, name string, round int) (err error) {
	dir := filepath.Join(r.dir, fmt.Sprint(name, round))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	server, err := r.start(ctx, name, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.stop(), os.RemoveAll(dir)) }()
	if server.kubeconfig != "" && !r.registryOnly {
		if err := r.measureAPI(ctx, t, name, server.kubeconfig); err != nil {
			return err
		}
	}
	if server.registry != "" && !r.apiOnly {
		return r.measureRegistry(ctx, t, name, server)
	}
	return nil
}

func (r *runner) measureAPI(ctx context.Context, t *table, name, kubeconfig string) error {
	for _, args := range [][]string{
		{"create", "get", "list", "page", "update", "patch", "delete", "finalize", "collection", "cascade"},
		{"watch", "--duration", "5s"},
	} {
		results, err := r.bench(ctx, append(args, "--kubeconfig", kubeconfig, "--objects", fmt.Sprint(r.objects))...)
		if err != nil {
			return err
		}
		t.add(name, results)
	}
	idle, err := r.bench(ctx, "watch", "--watchers", "1", "--writers", "1", "--rate", "100", "--duration", "5s", "--kubeconfig", kubeconfig)
	if err != nil {
		return err
	}
	t.addDelivery(name, idle)
	return nil
}

func (r *runner) measureRegistry(ctx context.Context, t *table, name string, server *running) error {
	args := []string{"registry", server.registry, "--large", "-1", "--tags", "500"}
	if server.kubeconfig != "" {
		args = append(args, "--kubeconfig", server.kubeconfig)
	} else {
		args = append(args, "--leave-repository")
	}
	results, err := r.bench(ctx, args...)
	if err == nil {
		t.add(name, results)
	}
	return err
}

// bench runs "exeunt bench" in a process of its own, as a client does.
func (r *runner) bench(ctx context.Context, args ...string) ([]bench.Result, error) {
	cmd := exec.CommandContext(ctx, r.exeunt, append(append([]string{"bench"}, args...), "-o", "json")...)
	var out, problem bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problem
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("exeunt bench %v: %w: %s", args, err, problem.String())
	}
	var results []bench.Result
	err := json.Unmarshal(out.Bytes(), &results)
	return results, err
}
