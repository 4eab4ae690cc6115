package robust_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/exeunt/exeunt/test/harness"
)

// TestUnconfirmed: PostgreSQL lets a COMMIT succeed with a warning when an operator cancels its
// wait for the standby. The server does not acknowledge that write: a failover loses it.
func TestUnconfirmed(t *testing.T) {
	c := newCluster(t, false)
	database := fmt.Sprintf("postgres://exeunt@127.0.0.1:%d,127.0.0.1:%d/exeunt?sslmode=disable&target_session_attrs=read-write", c.nodes[0].port, c.nodes[1].port)
	s := harness.StartOn(t, harness.Postgres, database, "--registry-storage", t.TempDir())
	h := s.HTTP()
	create := func(name string) harness.Answer {
		return h.Do(t, harness.Request{Method: "POST", Path: "/api/v1/namespaces/default/configmaps", Body: fmt.Sprintf(`{"metadata":{"name":%q}}`, name)})
	}
	if a := create("before"); a.Code != 201 {
		t.Fatalf("create answers %d: %s", a.Code, a.Body)
	}
	c.cutStandby(holding)
	cancelled := make(chan error, 1)
	go func() { cancelled <- c.cancelWaiting() }()
	if a := create("lost"); a.Code < 500 {
		t.Errorf("a create that the standby does not have answers %d: %s", a.Code, a.Body)
	}
	if err := <-cancelled; err != nil {
		t.Fatal(err)
	}
	c.failOver()
	harness.Until(t, "writes after the failover", func() error {
		if a := create("after"); a.Code != 201 && a.Code != 409 {
			return fmt.Errorf("create answers %d: %s", a.Code, a.Body)
		}
		return nil
	})
	harness.Until(t, "a read after the failover", func() error {
		a := h.Do(t, harness.Request{Method: "GET", Path: "/api/v1/namespaces/default/configmaps/lost"})
		if a.Code == 200 {
			t.Fatal("the standby had the write after all: the test proves nothing")
		}
		if a.Code != 404 {
			return fmt.Errorf("GET answers %d", a.Code)
		}
		return nil
	})
}

// cancelWaiting cancels the first wait for the standby that it sees.
func (c *cluster) cancelWaiting() error {
	for deadline := time.Now().Add(harness.Patience); time.Now().Before(deadline); {
		n, err := c.query("SELECT count(pg_cancel_backend(pid))::text FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
		if err != nil || n != "0" {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
	return errors.New("no commit waits for the standby")
}
