package api

import (
	"fmt"
	"net/http"
	"runtime/debug"

	"github.com/exeunt/exeunt/object"
)

// attempt runs what a caller's input decides: computing a change, preparing an
// object, judging it. The libraries that do it stumble over some inputs that
// make no sense (a JSON patch that tests the whole document against nothing).
// Nothing has been done at that point, so the caller is told that the input is
// no good, and the log has the rest.
func (r *resource) attempt(f func() error) (err error) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		if p == http.ErrAbortHandler {
			panic(p)
		}
		r.api.log.Error("input made a library panic", "resource", r.v.Resource().String(), "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		err = object.BadRequestf("the request cannot be carried out: what it asks for makes no sense for a %s", r.v.GVK.Kind)
	}()
	return f()
}
