package registry

import (
	"net/http"
	"net/url"
	"strconv"
)

// page is which part of a list is asked for.
type page struct {
	size int    // at most so many entries
	last string // after this one
}

// parsePage reads n and last. A list that is longer than most goes on in the
// Link of the answer, whatever n says.
func parsePage(query url.Values, most int) (page, error) {
	p := page{size: most, last: query.Get("last")}
	if p.last != "" && !visible(p.last) {
		return page{}, errorf(Unsupported, "last is %q, which is no name", p.last)
	}
	if query.Has("n") {
		n, err := strconv.Atoi(query.Get("n"))
		if err != nil || n < 0 {
			return page{}, errorf(Unsupported, "n is %q, not a number of entries", query.Get("n"))
		}
		p.size = min(n, most)
	}
	return p, nil
}

// link says where the list goes on after its last entry.
func link(w http.ResponseWriter, at Request, query url.Values, last string, size int) {
	next := url.Values{"n": {strconv.Itoa(size)}, "last": {last}}
	if filter := query.Get("artifactType"); filter != "" {
		next.Set("artifactType", filter)
	}
	w.Header().Set("Link", "<"+at.Path()+"?"+next.Encode()+`>; rel="next"`)
}
