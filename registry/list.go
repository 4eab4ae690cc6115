package registry

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// The longest lists in one answer.
const (
	mostTags         = 10_000
	mostRepositories = 1_000
)

// tagList lists a repository's tags, in the order of their bytes.
func (r *Registry) tagList(w http.ResponseWriter, req *http.Request, to Request) error {
	query := req.URL.Query()
	p, err := parsePage(query, mostTags)
	if err != nil {
		return err
	}
	repo, err := r.existing(req.Context(), to.Repository)
	if err != nil {
		return err
	}
	names, more, err := r.names(req.Context(), p, listTags, repo.id, p.last, p.size+1)
	if err != nil {
		return fmt.Errorf("list tags: %w", err)
	}
	if more {
		link(w, to, query, names[len(names)-1], p.size)
	}
	// Names and tags have no characters that JSON escapes.
	body := append(make([]byte, 0, 64+32*len(names)), `{"name":"`+to.Repository+`","tags":[`...)
	return writeNames(w, body, names)
}

// catalog lists the repositories that have content and that the client may see.
func (r *Registry) catalog(w http.ResponseWriter, req *http.Request, to Request) error {
	query := req.URL.Query()
	p, err := parsePage(query, mostRepositories)
	if err != nil {
		return err
	}
	names, more, err := r.visible(req.Context(), to.client, p)
	if err != nil {
		return fmt.Errorf("list repositories: %w", err)
	}
	if more {
		link(w, to, query, names[len(names)-1], p.size)
	}
	return writeNames(w, []byte(`{"repositories":[`), names)
}

// visible reads pages until one of p's size is full of what the client may see.
func (r *Registry) visible(ctx context.Context, client Client, p page) (names []string, more bool, err error) {
	step := page{size: mostRepositories, last: p.last}
	for p.size > 0 {
		found, rest, err := r.names(ctx, step, listRepositories, step.last, step.size+1)
		if err != nil {
			return nil, false, err
		}
		for _, name := range found {
			switch {
			case !client.Sees(name):
			case len(names) == p.size:
				return names, true, nil
			default:
				names = append(names, name)
			}
		}
		if !rest {
			break
		}
		step.last = found[len(found)-1]
	}
	return names, false, nil
}

// names reads one entry more than the page holds, to know whether the list
// continues. All names come as one value, separated by commas, which no name
// contains: fetching rows would take longer than everything else.
func (r *Registry) names(ctx context.Context, p page, statement string, args ...any) (names []string, more bool, err error) {
	if p.size == 0 {
		return nil, false, nil
	}
	var joined string
	if _, err := r.db.Row(ctx, statement, args, &joined); err != nil || joined == "" {
		return nil, false, err
	}
	names = strings.Split(joined, ",")
	if len(names) > p.size {
		return names[:p.size], true, nil
	}
	return names, false, nil
}

func writeNames(w http.ResponseWriter, body []byte, names []string) error {
	for i, name := range names {
		if i > 0 {
			body = append(body, ',')
		}
		body = append(body, '"')
		body = append(body, name...)
		body = append(body, '"')
	}
	body = append(body, "]}\n"...)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, err := w.Write(body)
	return clientGone(err)
}

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
