package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/exeunt/exeunt/test/peers"
)

func (r *runner) start(ctx context.Context, name, dir string) (*running, error) {
	group, err := peers.NewGroup(r.bin, dir)
	if err != nil {
		return nil, err
	}
	group.Sync = true // as our databases do
	var s *running
	switch name {
	case kubernetes:
		s, err = startKubernetes(ctx, group)
	case distribution:
		s, err = startDistribution(ctx, group, dir)
	default:
		s, err = r.startExeunt(ctx, group, name, dir)
	}
	if err != nil {
		return nil, errors.Join(err, group.Stop())
	}
	s.stop = group.Stop
	return s, nil
}

// startKubernetes gives the controller manager room: its default rate limit is 20 requests a second.
func startKubernetes(ctx context.Context, group *peers.Group) (*running, error) {
	kubeconfig, err := group.APIServer(ctx)
	if err != nil {
		return nil, err
	}
	_, err = group.ControllerManager(kubeconfig, "garbage-collector-controller,namespace-controller", "--kube-api-qps=2000", "--kube-api-burst=4000", "--concurrent-gc-syncs=50")
	return &running{kubeconfig: kubeconfig}, err
}

func startDistribution(ctx context.Context, group *peers.Group, dir string) (*running, error) {
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	config := filepath.Join(dir, "distribution.yaml")
	text := fmt.Sprintf("version: 0.1\nlog: {level: error, accesslog: {disabled: true}}\nstorage:\n  filesystem: {rootdirectory: %s}\n  delete: {enabled: true}\n  cache: {blobdescriptor: inmemory}\nhttp: {addr: %s}\n",
		filepath.Join(dir, "storage"), address)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, err
	}
	if _, err := group.Start("registry", "serve", config); err != nil {
		return nil, err
	}
	return &running{registry: "http://" + address}, answers(ctx, "http://"+address+"/v2/")
}

func (r *runner) startExeunt(ctx context.Context, group *peers.Group, name, dir string) (*running, error) {
	api, err := freeAddress()
	if err != nil {
		return nil, err
	}
	registry, err := freeAddress()
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "data")
	args := []string{"serve", "--data", data, "--listen", api, "--registry-listen", registry}
	if name == onPostgres {
		database, err := r.newDatabase(ctx, dir)
		if err != nil {
			return nil, err
		}
		args = append(args, "--database", database)
	}
	if _, err := group.StartPath(r.exeunt, args...); err != nil {
		return nil, err
	}
	return &running{kubeconfig: filepath.Join(data, "kubeconfig"), registry: "http://" + registry}, answers(ctx, "http://"+registry+"/v2/")
}

// newDatabase creates an empty database, named after the directory of the turn.
func (r *runner) newDatabase(ctx context.Context, dir string) (string, error) {
	conn, err := pgx.Connect(ctx, r.postgres)
	if err != nil {
		return "", err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	name := strings.ToLower(filepath.Base(r.dir) + "-" + filepath.Base(dir))
	if _, err := conn.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize()); err != nil {
		return "", err
	}
	database, err := url.Parse(r.postgres)
	if err != nil {
		return "", err
	}
	database.Path = "/" + name
	return database.String(), nil
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// answers waits until a registry answers.
func answers(ctx context.Context, target string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
		if err != nil {
			return err
		}
		answer, err := http.DefaultClient.Do(req)
		if err == nil {
			answer.Body.Close()
			if answer.StatusCode == http.StatusOK || answer.StatusCode == http.StatusUnauthorized {
				return nil
			}
			err = fmt.Errorf("%s answers %s", target, answer.Status)
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}
