package server

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/exeunt/exeunt/sqldb/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// patience limits how long a test waits for an expected event.
const patience = time.Minute

// running is a started server.
type running struct {
	t      *testing.T
	cancel context.CancelFunc
	done   chan error
	out    *output
	data   string
	http   *rest.Config
	client *kubernetes.Clientset
}

// output collects what the server prints.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// start runs a server and waits until it answers a client with its kubeconfig.
func start(t *testing.T, c Config) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{t: t, cancel: cancel, done: make(chan error, 1), out: &output{}, data: c.Data}
	c.Listen, c.Version = "127.0.0.1:0", "test"
	c.Started = func(a Addresses) { fmt.Fprint(r.out, a) }
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	go func() { r.done <- Run(ctx, c) }()
	t.Cleanup(cancel)
	dbtest.Await(t, "the server announces itself", func() bool {
		select {
		case err := <-r.done:
			t.Fatalf("Run returned %v", err)
		default:
		}
		return strings.Contains(r.out.String(), "kubectl get namespaces")
	})
	var err error
	if r.http, err = clientcmd.BuildConfigFromFlags("", filepath.Join(c.Data, "kubeconfig")); err != nil {
		t.Fatal(err)
	}
	if r.client, err = kubernetes.NewForConfig(r.http); err != nil {
		t.Fatal(err)
	}
	return r
}

// stop ends the server and waits for it.
func (r *running) stop() {
	r.t.Helper()
	r.cancel()
	select {
	case err := <-r.done:
		if err != nil {
			r.t.Errorf("Run returned %v", err)
		}
	case <-time.After(patience):
		r.t.Fatal("Run did not return")
	}
}

// TestRun starts, stops and restarts a server on each engine; the data stays.
func TestRun(t *testing.T) {
	for _, engine := range dbtest.EnginesOf(t) {
		t.Run(string(engine), func(t *testing.T) {
			config := Config{Data: filepath.Join(t.TempDir(), "data"), Database: dbtest.Open(t, engine)}
			r := start(t, config)
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			if body, err := r.client.RESTClient().Get().AbsPath("/readyz").DoRaw(ctx); err != nil || string(body) != "ok" {
				t.Errorf("/readyz: %q, %v", body, err)
			}
			if body, err := r.client.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx); err != nil || !bytes.Contains(body, []byte("exeunt_store_revision")) {
				t.Errorf("/metrics: %.80q, %v", body, err)
			}
			for _, name := range []string{"default", "kube-system", "kube-public", "kube-node-lease"} {
				if _, err := r.client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{}); err != nil {
					t.Error(err)
				}
			}
			if _, err := r.client.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			r.stop()

			again := start(t, config)
			if _, err := again.client.CoreV1().ConfigMaps("default").Get(ctx, "kept", metav1.GetOptions{}); err != nil {
				t.Error(err)
			}
			again.stop()
		})
	}
}

// TestStopsInOrder: watches end cleanly, a pending write is finished, and no goroutine is left.
func TestStopsInOrder(t *testing.T) {
	config := Config{Data: filepath.Join(t.TempDir(), "data")}
	start(t, config).stop() // starts the goroutines that libraries start once
	before := settled()

	r := start(t, config)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	configMaps := r.client.CoreV1().ConfigMaps("default")
	w, err := configMaps.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := configMaps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if e := <-w.ResultChan(); e.Type != watch.Added {
		t.Fatalf("first event: %v", e)
	}
	acknowledged := make(chan int)
	go func() { acknowledged <- createUntilRefused(ctx, t, r) }()
	dbtest.Await(t, "writes are under way", func() bool {
		list, err := configMaps.List(ctx, metav1.ListOptions{Limit: 3})
		return err == nil && len(list.Items) == 3
	})
	r.stop()
	for e := range w.ResultChan() { // ends with the watch, or the test times out
		if e.Type == watch.Error {
			t.Errorf("the watch ended with %v", apierrors.FromObject(e.Object))
		}
	}
	written := <-acknowledged
	if transport, err := rest.HTTPClientFor(r.http); err == nil {
		transport.CloseIdleConnections()
	}
	dbtest.Until(t, "no goroutine is left", func() error {
		if after := runtime.NumGoroutine(); after > before {
			buf := make([]byte, 1<<20)
			return fmt.Errorf("%d goroutines before, %d after:\n%s", before, after, buf[:runtime.Stack(buf, true)])
		}
		return nil
	})

	again := start(t, config)
	list, err := again.client.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Items) < written {
		t.Errorf("%d writes were acknowledged, %d are there", written, len(list.Items))
	}
	again.stop()
}

// createUntilRefused writes until the server no longer answers, and returns how many writes it
// acknowledged, plus one that the caller made before.
func createUntilRefused(ctx context.Context, t *testing.T, r *running) int {
	for n := 1; ; n++ {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "w-"}}
		if _, err := r.client.CoreV1().ConfigMaps("default").Create(ctx, cm, metav1.CreateOptions{}); err != nil {
			if apierrors.IsInternalError(err) {
				t.Errorf("a write during the stop: %v", err)
			}
			return n
		}
	}
}

// settled returns the number of goroutines after those that are ending have ended.
func settled() int {
	lowest := runtime.NumGoroutine()
	for range 50 {
		runtime.Gosched()
		time.Sleep(2 * time.Millisecond)
		lowest = min(lowest, runtime.NumGoroutine())
	}
	return lowest
}

func TestSecondServerIsKeptOut(t *testing.T) {
	dir := t.TempDir()
	unlock, err := lockData(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lockData(dir, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "another server uses the data directory "+dir) {
		t.Errorf("a second lock: %v", err)
	}
	err = Run(t.Context(), Config{Data: dir, Started: func(Addresses) {}, Logger: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), "--data") {
		t.Errorf("a second server: %v", err)
	}
	unlock()
	unlock, err = lockData(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatalf("after the first has gone: %v", err)
	}
	unlock()
	if _, err := lockData(filepath.Join(dir, "lock", "below a file"), slog.New(slog.DiscardHandler)); err == nil || !strings.HasPrefix(err.Error(), "make data directory: ") {
		t.Errorf("in a path that cannot be a directory: %v", err)
	}
}

// TestBadSettings: each mistake ends the start with an error that names the setting and the
// reason.
func TestBadSettings(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte(strings.Repeat("this is no database\n", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	listens := "another program"
	if runtime.GOOS == "linux" {
		listens = fmt.Sprintf("process %d (", os.Getpid())
	}
	for _, test := range []struct {
		name   string
		change func(*Config)
		want   []string
	}{
		{"listen without a port", func(c *Config) { c.Listen = "localhost" }, []string{"--listen", `"localhost"`, "HOST:PORT"}},
		{"listen on a port that cannot be", func(c *Config) { c.Listen = "127.0.0.1:99999" }, []string{"listen on 127.0.0.1:99999", "invalid port"}},
		{"listen on a port that is taken", func(c *Config) { c.Listen = taken.Addr().String() }, []string{taken.Addr().String(), listens, "--listen"}},
		{"listen on an address of another machine", func(c *Config) { c.Listen = "192.0.2.1:0" }, []string{"192.0.2.1:0", "cannot assign"}},
		{"database is no database", func(c *Config) { c.Database = file }, []string{file, "not a database"}},
		{"database below a file", func(c *Config) { c.Database = filepath.Join(file, "x.db") }, []string{"x.db"}},
		{"database is a directory", func(c *Config) { c.Database = filepath.Dir(file) }, []string{filepath.Dir(file)}},
		{"database does not answer", func(c *Config) { c.Database = "postgres://u@127.0.0.1:1/x?connect_timeout=5" }, []string{"127.0.0.1:1", "refused"}},
		{"database is no URL", func(c *Config) { c.Database = "postgres://u:secret@[::1/x" }, []string{"postgres"}},
		{"data is a file", func(c *Config) { c.Data = file }, []string{"data directory", file}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := Config{Data: filepath.Join(t.TempDir(), "data"), Listen: "127.0.0.1:0", Started: func(Addresses) {}, Logger: slog.New(slog.DiscardHandler)}
			test.change(&c)
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			err := Run(ctx, c)
			if err == nil {
				t.Fatal("the server ran")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("error %q shows the password", err)
			}
		})
	}
}

func TestHostNames(t *testing.T) {
	for _, test := range []struct {
		host string
		want bool // the host is added to the fixed names
	}{{"", false}, {"0.0.0.0", false}, {"::", false}, {"127.0.0.1", false}, {"localhost", false}, {"10.1.2.3", true}, {"db.example", true}} {
		names := hostNames(test.host)
		if got := strings.Contains(" "+strings.Join(names[3:], " ")+" ", " "+test.host+" ") && test.host != ""; got != test.want {
			t.Errorf("hostNames(%q) = %v", test.host, names)
		}
	}
}

// TestReachable: a listener on all addresses is announced with one that other machines can use.
func TestReachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	outside := "127.0.0.1"
	if all := machineAddresses(); len(all) > 0 {
		outside = all[0].String()
	}
	for host, want := range map[string]string{
		"": outside, "0.0.0.0": outside, "::": outside, "::1": "::1", "127.0.0.1": "127.0.0.1", "db.example": "db.example",
	} {
		listen := net.JoinHostPort(host, "0")
		if got := clientAddress(listen, l); got != net.JoinHostPort(want, port) {
			t.Errorf("clientAddress(%q) = %s", listen, got)
		}
		if unspecified(host) {
			want = "127.0.0.1"
		}
		if got := localURL(listen, l); got != "https://"+net.JoinHostPort(want, port) {
			t.Errorf("localURL(%q) = %s", listen, got)
		}
	}
}
