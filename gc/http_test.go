package gc

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

func TestServeHTTP(t *testing.T) {
	each(t, func(w *world) {
		w.add("a")
		w.add("b", owned("a"))
		w.delete("a", background)
		w.ask(http.MethodGet, "/exeunt/gc", 200, `"paused":false,"depth":1,"overdue":1`)
		w.ask(http.MethodGet, "/exeunt/gc/", 200, `"paused":false`)
		w.ask(http.MethodPost, "/exeunt/gc/pause?reason="+url.QueryEscape("why\x00 not"), 200, `"paused":true,"reason":"why not"`)
		if r := w.turn(); !r.Paused {
			w.Errorf("turn: %+v", r)
		}
		w.exec(`DELETE FROM gc_object_reviews`)
		w.ask(http.MethodPost, "/exeunt/gc/scan", 200, `"found":1`)
		w.ask(http.MethodPost, "/exeunt/gc/resume", 200, `"paused":false`)
		w.drain()
		w.want("")
		w.ask(http.MethodGet, "/exeunt/gc", 200, `"depth":0`)

		w.ask(http.MethodPost, "/exeunt/gc", 405, "use GET")
		w.ask(http.MethodGet, "/exeunt/gc/pause", 405, "use POST")
		w.ask(http.MethodPost, "/exeunt/gc/explode", 404, "")
		w.ask(http.MethodPost, "/exeunt/gc/pause?reason="+strings.Repeat("x", 1001), 400, "longer than 1000 bytes")
		w.ask(http.MethodPost, "/exeunt/gc/pause?reason="+strings.Repeat("x", 1000), 200, `"paused":true`)
	})
}

func (w *world) ask(method, target string, code int, want string) {
	w.Helper()
	answer := httptest.NewRecorder()
	w.gc.ServeHTTP(answer, httptest.NewRequest(method, target, nil))
	if answer.Code != code || !strings.Contains(answer.Body.String(), want) {
		w.Errorf("%s %s: %d %s; want %d and %s", method, target, answer.Code, answer.Body, code, want)
	}
	if code == 200 && !json.Valid(answer.Body.Bytes()) {
		w.Errorf("%s %s: not JSON: %s", method, target, answer.Body)
	}
}
