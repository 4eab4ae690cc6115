package demo

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	"github.com/exeunt/exeunt/test/crossplane"
)

var secrets = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}

// machines is a cloud: for each Machine that Crossplane creates it starts the agent that
// cloud-init would start, and it kills the agent when the Machine is gone. The agents are
// real: `exeunt node join`.
type machines struct {
	s       *stage
	service string // HOST:PORT that the nodes relay to
	agents  map[types.UID]*agent
}

type agent struct {
	cmd    *exec.Cmd
	exited chan struct{}
}

// run works until ctx ends; it returns when all agents have ended.
func (m *machines) run(ctx context.Context) error {
	m.agents = map[types.UID]*agent{}
	factory := dynamicinformer.NewDynamicSharedInformerFactory(m.s.objects, time.Second)
	look := func(obj any) {
		o, ok := obj.(*unstructured.Unstructured)
		if !ok || o.GetDeletionTimestamp() != nil || m.agents[o.GetUID()] != nil {
			return
		}
		if err := m.boot(ctx, o); err != nil && ctx.Err() == nil {
			m.s.line("machine %s does not boot yet: %v", o.GetName(), err)
		}
	}
	gone := func(obj any) {
		if tomb, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = tomb.Obj
		}
		if o, ok := obj.(*unstructured.Unstructured); ok {
			m.unplug(o.GetUID())
		}
	}
	_, err := factory.ForResource(crossplane.Machines).Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: look, UpdateFunc: func(_, obj any) { look(obj) }, DeleteFunc: gone,
	})
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	<-ctx.Done()
	factory.Shutdown()
	for uid := range m.agents {
		m.unplug(uid)
	}
	return nil
}

// boot starts an agent as the machine's user data says.
func (m *machines) boot(ctx context.Context, machine *unstructured.Unstructured) error {
	name, _, _ := unstructured.NestedString(machine.Object, "spec", "tokenSecret")
	secret, err := m.s.objects.Resource(secrets).Namespace(machine.GetNamespace()).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	dir := filepath.Join(m.s.Dir, "machines", string(machine.GetUID()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	content := map[string]string{}
	for _, key := range []string{"token", "ca.crt", "server"} {
		text, _, _ := unstructured.NestedString(secret.Object, "data", key)
		data, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return fmt.Errorf("%s of secret %s: %w", key, name, err)
		}
		content[key] = string(data)
		if err := os.WriteFile(filepath.Join(dir, key), data, 0o600); err != nil {
			return err
		}
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	a := &agent{exited: make(chan struct{})}
	a.cmd = m.s.process(ctx, "node", "join", "--server", content["server"], "--token-file", filepath.Join(dir, "token"),
		"--ca-file", filepath.Join(dir, "ca.crt"), "--name", machine.GetName(), "--state", filepath.Join(dir, "state"),
		"--listen", "127.0.0.1:0", "--forward", m.service, "--drain-timeout", "60s")
	a.cmd.Stdout, a.cmd.Stderr = log, log
	if err := a.cmd.Start(); err != nil {
		return err
	}
	go func() {
		_ = a.cmd.Wait() // its log has the exit status
		close(a.exited)
	}()
	m.agents[machine.GetUID()] = a
	return nil
}

// unplug kills the agent of a machine, if it has not left by itself.
func (m *machines) unplug(uid types.UID) {
	if a := m.agents[uid]; a != nil {
		_ = a.cmd.Process.Kill() // it may have ended
		<-a.exited
		delete(m.agents, uid)
	}
}

// serveCustomers is the shop's service: it echoes what it receives.
func serveCustomers(ctx context.Context, s *stage) (address string, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	s.play(ctx, "service", func(ctx context.Context) error {
		defer context.AfterFunc(ctx, func() { _ = listener.Close() })()
		for {
			conn, err := listener.Accept()
			if err != nil {
				return err
			}
			s.running.Go(func() {
				defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
				_, _ = io.Copy(conn, conn)
				_ = conn.Close()
			})
		}
	})
	return listener.Addr().String(), nil
}

// customer connects to the service through a node, and exchanges one message.
func customer(ctx context.Context, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return conn, talk(conn)
}

// talk sends a line and expects it back.
func talk(conn net.Conn) error {
	const words = "one pound of tea, please"
	if _, err := io.WriteString(conn, words); err != nil {
		return err
	}
	heard := make([]byte, len(words))
	if _, err := io.ReadFull(conn, heard); err != nil || string(heard) != words {
		return fmt.Errorf("the shop answered %q: %w", heard, err)
	}
	return nil
}
