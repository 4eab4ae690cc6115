package api

import (
	"fmt"
	"net/http"
	"runtime/debug"

	"github.com/exeunt/exeunt/object"
)

// recovering runs f and turns a panic into a Bad Request error. f works on the
// client's input: it computes a change, or prepares or validates an object. The
// libraries panic on some senseless inputs (a JSON patch that tests the whole
// document against null). Nothing is written at that point, so the client gets
// an error and the log gets the panic with its stack.
func (r *resource) recovering(f func() error) (err error) {
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
