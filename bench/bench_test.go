package bench_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/exeunt/exeunt/bench"
)

// These benchmarks run the real program. Without -bench nothing is built or started;
// PostgreSQL is included if EXEUNT_TEST_POSTGRES names a server.

func BenchmarkCreate(b *testing.B) {
	eachEngine(b, func(b *testing.B, s *server) {
		c := s.config(b)
		c.Objects = b.N
		s.report(b, c, bench.RunCreate)
	})
}

func BenchmarkGet(b *testing.B) {
	eachEngine(b, func(b *testing.B, s *server) {
		c := s.config(b)
		c.Objects, c.Duration = 1000, 2*time.Second
		s.report(b, c, bench.RunGet)
	})
}

func BenchmarkList(b *testing.B) {
	eachEngine(b, func(b *testing.B, s *server) {
		c := s.config(b)
		c.Rounds = b.N
		s.report(b, c, bench.RunList)
	})
}

func BenchmarkWatch(b *testing.B) {
	eachEngine(b, func(b *testing.B, s *server) {
		c := s.config(b)
		c.Events = b.N
		s.report(b, c, bench.RunWatch)
	})
}

// BenchmarkStart measures from starting the process until /readyz answers, on
// an empty database and on one with 10,000 objects.
func BenchmarkStart(b *testing.B) {
	for _, objects := range []int{0, 10_000} {
		b.Run(fmt.Sprintf("objects=%d", objects), func(b *testing.B) {
			eachEngine(b, func(b *testing.B, s *server) {
				if objects > 0 {
					c := s.config(b)
					c.Objects = objects
					if _, err := bench.RunCreate(b.Context(), c); err != nil {
						b.Fatal(err)
					}
				}
				s.stop(b)
				s.report(b, bench.Config{Command: s.command, Kubeconfig: s.kubeconfig, Rounds: b.N}, bench.RunStart)
			})
		})
	}
}

// eachEngine runs a benchmark with a new server on each engine. The testing package calls
// a benchmark several times with growing N, so each call starts a server.
func eachEngine(b *testing.B, run func(*testing.B, *server)) {
	b.Run("sqlite", func(b *testing.B) { run(b, startServer(b, "")) })
	if postgres := os.Getenv("EXEUNT_TEST_POSTGRES"); postgres != "" {
		b.Run("postgres", func(b *testing.B) { run(b, startServer(b, freshDatabase(b, postgres))) })
	}
}

// program builds the server once.
var program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "exeunt-bench")
	if err != nil {
		return "", err
	}
	target := filepath.Join(dir, "exeunt")
	cmd := exec.Command("go", "build", "-o", target, "./cmd/exeunt")
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the server: %w\n%s", err, out)
	}
	return target, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if built {
		if path, err := program(); err == nil {
			os.RemoveAll(filepath.Dir(path))
		}
	}
	os.Exit(code)
}

// built says that there is a program to remove. Benchmarks do not run concurrently, so it
// needs no lock.
var built bool

// server is one running program.
type server struct {
	command    []string
	kubeconfig string
	cmd        *exec.Cmd // nil once stopped
}

func startServer(b *testing.B, database string) *server {
	b.Helper()
	built = true
	path, err := program()
	if err != nil {
		b.Fatal(err)
	}
	dir := b.TempDir()
	s := &server{
		command:    []string{path, "serve", "--data", dir, "--listen", "127.0.0.1:0", "--log-level", "WARN"},
		kubeconfig: filepath.Join(dir, "kubeconfig"),
	}
	if database != "" {
		s.command = append(s.command, "--database", database)
	}
	s.cmd = exec.Command(s.command[0], s.command[1:]...)
	s.cmd.Stderr = os.Stderr
	if err := s.cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.stop(b) })
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		// The kubeconfig is written before the server answers.
		if _, err := os.Stat(s.kubeconfig); err == nil {
			return s
		}
		if time.Now().After(deadline) {
			b.Fatal("the server wrote no kubeconfig within a minute")
		}
	}
}

func (s *server) stop(b *testing.B) {
	b.Helper()
	if s.cmd == nil {
		return
	}
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		b.Error(err)
	}
	if err := s.cmd.Wait(); err != nil {
		b.Errorf("the server ended with %v", err)
	}
	s.cmd = nil
}

func (s *server) config(b *testing.B) bench.Config {
	b.Helper()
	rest, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig)
	if err != nil {
		b.Fatal(err)
	}
	return bench.Config{REST: rest, PID: s.cmd.Process.Pid}
}

// report runs a workload and reports its figures for benchstat. It omits the testing
// package's own ns/op, which would include the preparation.
func (s *server) report(b *testing.B, c bench.Config, run func(context.Context, bench.Config) (bench.Result, error)) {
	b.Helper()
	r, err := run(b.Context(), c)
	if err != nil {
		b.Fatal(err)
	}
	if err := r.Err(); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(0, "ns/op")
	for i, m := range r.Measures {
		suffix := ""
		if i > 0 { // "list, gzip" becomes ms-list-gzip
			suffix = "-" + unitName(m.Name)
		}
		if i == 0 {
			b.ReportMetric(m.PerSecond, "ops/s")
			b.ReportMetric(float64(m.Server.Resident)/(1<<20), "server-MiB")
		}
		b.ReportMetric(float64(m.Latency.P50)/1e6, "p50-ms"+suffix)
		b.ReportMetric(float64(m.Latency.P99)/1e6, "p99-ms"+suffix)
		b.ReportMetric(float64(m.Server.CPUPerOperation)/1e3, "server-µs-CPU/op"+suffix)
	}
}

func unitName(measure string) string {
	var name []rune
	for _, r := range measure {
		switch r {
		case ',':
		case ' ':
			name = append(name, '-')
		default:
			name = append(name, r)
		}
	}
	return string(name)
}

// freshDatabase creates a database that is dropped when the benchmark ends.
func freshDatabase(b *testing.B, postgres string) string {
	b.Helper()
	name := fmt.Sprintf("bench_%d_%d", os.Getpid(), time.Now().UnixNano())
	execute := func(statement string) {
		b.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		conn, err := pgx.Connect(ctx, postgres)
		if err != nil {
			b.Fatal(err)
		}
		defer conn.Close(ctx)
		if _, err := conn.Exec(ctx, statement); err != nil {
			b.Fatalf("%s: %v", statement, err)
		}
	}
	execute("CREATE DATABASE " + name)
	b.Cleanup(func() { execute("DROP DATABASE " + name + " WITH (FORCE)") })
	u, err := url.Parse(postgres)
	if err != nil {
		b.Fatalf("EXEUNT_TEST_POSTGRES: %v", err)
	}
	u.Path = "/" + name
	return u.String()
}
