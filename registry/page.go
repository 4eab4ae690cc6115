package registry

import (
	"net/http"
	"net/url"
	"strconv"
)

// page is the requested part of a list.
type page struct {
	size int    // maximum number of entries
	last string // the page begins after this entry
}

// parsePage reads n and last. The page has at most most entries, whatever n
// says; the answer's Link leads to the rest.
func parsePage(query url.Values, most int) (page, error) {
	p := page{size: most, last: query.Get("last")}
	if p.last != "" && !visible(p.last) {
		return page{}, errorf(Unsupported, "last is %q, which is not a valid name", p.last)
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

// link adds the URL of the next page.
func link(w http.ResponseWriter, at Request, query url.Values, last string, size int) {
	next := url.Values{"n": {strconv.Itoa(size)}, "last": {last}}
	if filter := query.Get("artifactType"); filter != "" {
		next.Set("artifactType", filter)
	}
	w.Header().Set("Link", "<"+at.Path()+"?"+next.Encode()+`>; rel="next"`)
}
