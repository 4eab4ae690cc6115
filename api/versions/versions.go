// Package versions makes pages of the versions of a name: GET /at/versions/ and the path of an object. It decides nothing about
// rights, and knows no kinds.
package versions

import (
	"context"
	"encoding/json"
	"math"
	"net/url"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
	"github.com/exeunt/exeunt/store/history"
)

// Bounds of a page. A version that is larger than the bytes is a page of its own.
const (
	usual     = 50
	most      = 500
	mostBytes = 4 << 20
)

// Version is a version of a name, as the store has it.
type Version struct {
	store.Version
	UID types.UID
}

// Page is some versions of a name, the newest first, and, if there are more, the one behind them.
type Page struct {
	Found []Version
	more  bool
}

// Read reads the page that a query asks for. Error: BadRequest.
func Read(ctx context.Context, st *store.Store, key object.Key, query url.Values) (p Page, err error) {
	limit, err := number(query, "limit", usual)
	if err != nil {
		return p, err
	}
	limit = min(limit, most)
	before, err := number(query, "continue", math.MaxInt64)
	if err != nil {
		return p, err
	}
	size := 0
	err = st.Versions(ctx, key, before, func(uid string, v store.Version) bool {
		p.more = len(p.Found) == int(limit) || len(p.Found) > 0 && size+len(v.Body) > mostBytes
		p.Found, size = append(p.Found, Version{v, types.UID(uid)}), size+len(v.Body)
		return !p.more
	})
	return p, err
}

func number(query url.Values, name string, otherwise int64) (int64, error) {
	text := query.Get(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n <= 0 {
		return 0, object.BadRequestf("%s=%q: want a number", name, text)
	}
	return n, nil
}

// List is the first seen versions of a page as clients see them. wire encodes an object.
func (p Page) List(key object.Key, seen int, wire func(object.Object) ([]byte, error)) (*v1.ObjectVersionList, error) {
	list := &v1.ObjectVersionList{TypeMeta: metav1.TypeMeta{APIVersion: v1.GroupVersion.String(), Kind: "ObjectVersionList"}, Items: []v1.ObjectVersion{}}
	shown := seen
	if p.more && seen == len(p.Found) {
		shown--
		list.Continue = strconv.FormatInt(p.Found[shown-1].Revision, 10)
	}
	for i, v := range p.Found[:shown] {
		older := Version{}
		if i+1 < seen {
			older = p.Found[i+1]
		}
		item, err := show(key, v, older, wire)
		if err != nil {
			return nil, err
		}
		list.Items = append(list.Items, item)
	}
	return list, nil
}

var events = map[store.EventType]v1.VersionEvent{store.Created: v1.VersionCreated, store.Updated: v1.VersionChanged, store.Removed: v1.VersionRemoved}

// show is a version as clients see it, with what differs from the one before.
func show(key object.Key, v, older Version, wire func(object.Object) ([]byte, error)) (out v1.ObjectVersion, err error) {
	by := history.ParseAuthor(v.Author)
	out = v1.ObjectVersion{
		Version: strconv.FormatInt(v.Revision, 10), UID: v.UID, Event: events[v.Type],
		User: by.User, Client: by.Client, Verb: by.Verb, RequestID: by.RequestID,
	}
	if v.At > 0 {
		at := metav1.NewMicroTime(time.UnixMilli(v.At).UTC())
		out.Time = &at
	}
	if v.Body == nil {
		return out, nil
	}
	if v.Type == store.Updated && older.UID == v.UID && older.Body != nil {
		if out.Changes, err = v1.Differences(older.Body, v.Body); err != nil {
			return out, err
		}
	}
	text, err := wire(object.Object{Key: key, UID: v.UID, Revision: v.Revision, Body: v.Body})
	out.Object = &runtime.RawExtension{Raw: json.RawMessage(text)}
	return out, err
}
