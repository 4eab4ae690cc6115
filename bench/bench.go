// Package bench puts load on a Kubernetes API server and measures it. It works
// with any server that a kubeconfig names, so the figures are comparable.
//
// Every workload is one function: RunCreate, RunGet, RunList, RunPage, RunWatch, RunUpdate,
// RunPatch, RunDelete, RunFinalize, RunCollection, RunCascade, RunHistory, RunExpiry,
// RunExpiryOfJobs and RunStart. Each takes a Config and returns a Result. Load and server often share a machine, so the load is light: plain net/http over a few
// HTTP/2 connections, bodies that are never copied, answers that are read but
// not decoded (except where decoding is the question), no rate limit.
//
// Everything happens in one namespace that carries ownerLabel. Cleanup removes
// it; a namespace without the label is never touched.
package bench

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/rest"
)

// Config names the server and sets the load. The zero value of a field is its
// default.
type Config struct {
	// REST is the client configuration. It is required, except by RunStart.
	REST *rest.Config
	// Namespace holds everything that a run makes. Default "bench".
	Namespace string
	// Clients is the number of concurrent requests. Default 32.
	Clients int
	// Connections is the number of TCP connections of the clients, and of
	// further ones for the watchers. Default 8, but no more than Clients.
	Connections int
	// Objects is the number of ConfigMaps to create, read, list, change and
	// delete. Default 10,000.
	Objects int
	// Size is the number of bytes of data in each ConfigMap. Default 1,024.
	Size int
	// Duration is how long RunGet reads and RunWatch writes, and over which time objects expire. Default 10 s.
	Duration time.Duration
	// Rounds is how many lists of each kind RunList requests, and how often
	// RunStart starts the server. Default 10.
	Rounds int
	// Watchers is how many watches RunWatch opens. Default 100.
	Watchers int
	// Writers is how many clients write for the watchers. Default 4.
	Writers int
	// Events ends RunWatch after this number of writes instead of after
	// Duration.
	Events int
	// Rate is how many writes RunWatch makes in a second, all writers together. Default: as
	// many as the server answers; for RunExpiry 50.
	Rate int
	// Seeded says that the objects exist already, as after RunCreate, so that
	// other workloads do not make them.
	Seeded bool
	// PID is the server's process on this machine: its CPU time and memory
	// become part of the result. Zero leaves them out.
	PID int

	// Command is the program, with arguments, that RunStart starts.
	Command []string
	// Kubeconfig is the kubeconfig file of the server that RunStart starts. It
	// may be written during the start.
	Kubeconfig string
}

func (c Config) withDefaults() Config {
	number := func(field *int, value int) {
		if *field == 0 {
			*field = value
		}
	}
	number(&c.Clients, 32)
	number(&c.Connections, min(8, c.Clients))
	number(&c.Objects, 10_000)
	number(&c.Size, 1024)
	number(&c.Rounds, 10)
	number(&c.Watchers, 100)
	number(&c.Writers, 4)
	if c.Namespace == "" {
		c.Namespace = "bench"
	}
	if c.Duration == 0 {
		c.Duration = 10 * time.Second
	}
	return c
}

// check refuses invalid values. It expects the defaults to be filled.
func (c Config) check() error {
	if c.REST == nil {
		return errors.New("bench: no server to load")
	}
	for _, field := range []struct {
		name  string
		value int
		least int
		most  int
	}{
		{"clients", c.Clients, 1, 100_000},
		{"connections", c.Connections, 1, 100_000},
		{"objects", c.Objects, 1, maxObjects},
		{"size", c.Size, 1, 1 << 20}, // the maximum for a ConfigMap in Kubernetes
		{"rounds", c.Rounds, 1, 1_000_000},
		{"watchers", c.Watchers, 1, 100_000},
		{"writers", c.Writers, 1, 1000},
		{"events", c.Events, 0, 1 << 31},
		{"rate", c.Rate, 0, 1_000_000},
		{"pid", c.PID, 0, 1 << 31},
	} {
		if field.value < field.least || field.value > field.most {
			return fmt.Errorf("bench: %s is %d, want %d to %d", field.name, field.value, field.least, field.most)
		}
	}
	if c.Duration < 0 {
		return fmt.Errorf("bench: duration is %s, want more than 0", c.Duration)
	}
	return nil
}
