package api

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/exeunt/exeunt/kind"
)

// TestWatchPanics: a panic while a watch decodes ends the watch with an ERROR event, and not the
// server.
func TestWatchPanics(t *testing.T) {
	var log bytes.Buffer
	r := &resource{api: &API{Config: Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}}, v: &kind.Version{Kind: &kind.Kind{Plural: "things"}}}
	w := &objectWatch{r: r, ctx: t.Context(), events: make(chan watch.Event, decodedEvents)}
	w.run(func() error { panic("boom") })
	e, open := <-w.events
	if status, ok := e.Object.(*metav1.Status); !open || !ok || e.Type != watch.Error || status.Code != 500 {
		t.Errorf("got %+v", e)
	}
	if _, open := <-w.events; open {
		t.Error("the watch goes on")
	}
	if !strings.Contains(log.String(), "boom") || !strings.Contains(log.String(), "things") {
		t.Errorf("the log says %s", log.String())
	}
}
