package api

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/exeunt/exeunt/internal/inflight"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

// List reads a page, or all, of the objects that the options select.
func (r *resource) List(ctx context.Context, options *metainternal.ListOptions) (runtime.Object, error) {
	listed, err := r.list(ctx, options)
	mark(ctx, stepRead)
	if err != nil {
		return nil, err
	}
	builder := listBuilder{list: r.v.NewList()}
	if builder.items, err = r.decodeAll(ctx, listed.objects); err != nil {
		return nil, err
	}
	return builder.finish(listed)
}

// listed is one page of stored objects.
type listed struct {
	objects  []object.Object
	revision int64
	next     *position // nil on the last page
}

func (r *resource) list(ctx context.Context, options *metainternal.ListOptions) (listed, error) {
	var out listed
	request, err := r.listRequest(ctx, options)
	if err != nil {
		return out, err
	}
	listing, err := r.openListing(ctx, request, options)
	if err != nil {
		return out, err
	}
	out.revision = listing.Revision()
	size, admitted := 0, 0
	for listing.Next() {
		o := listing.Object()
		out.objects = append(out.objects, o)
		if size += len(o.Body); size-admitted >= admitStep {
			if admitted = size; !inFlight(ctx).Admit(int64(size)) {
				return out, errBusy()
			}
		}
	}
	if err := listing.Err(); err != nil {
		return out, r.statusError(err, object.Key{})
	}
	if listing.More() {
		last := out.objects[len(out.objects)-1]
		next, err := r.after(ctx, request, options, listing, last.Key, len(out.objects))
		if err != nil {
			return out, r.statusError(err, object.Key{})
		}
		out.next = &next
	}
	return out, nil
}

// admitStep is after how many bytes a list asks again for memory.
const admitStep = 256 << 10

// inFlight is the request of a list, or nil.
func inFlight(ctx context.Context) *inflight.Request {
	r, _ := ctx.Value(inFlightKey{}).(*inflight.Request)
	return r
}

// listRequest reads the options: selectors, snapshot, and start position.
func (r *resource) listRequest(ctx context.Context, options *metainternal.ListOptions) (store.ListRequest, error) {
	match, name := r.matcher(options)
	request := store.ListRequest{Kind: r.v.Kind.Storage, Name: name, Limit: max(0, int(options.Limit))}
	if r.v.Kind.Namespaced {
		request.Namespace = genericrequest.NamespaceValue(ctx)
	}
	if !utf8.ValidString(name) || strings.ContainsRune(name, 0) { // PostgreSQL rejects such a text
		return request, r.statusError(object.BadRequestf("the field selector names an object %q, which is not a name", name), object.Key{})
	}
	if !match.All() {
		request.Match = func(o *object.Object) (bool, error) {
			if err := ctx.Err(); err != nil { // a match may ask a webhook
				return false, err
			}
			return match.Match(o.Key, o.Body)
		}
	}
	if options.Continue != "" {
		p, err := parsePosition(options.Continue)
		if err != nil {
			return request, r.statusError(err, object.Key{})
		}
		if options.ResourceVersion != "" && options.ResourceVersion != "0" {
			return request, r.statusError(object.BadRequestf("specifying resource version is not allowed when using continue"), object.Key{})
		}
		request.AfterNamespace, request.AfterName = p.Namespace, p.Name
		if !p.Newest {
			request.Revision = p.Revision
		}
		return request, r.statusError(atPast(ctx, &request, options), object.Key{})
	}
	revision, err := parseVersion(options.ResourceVersion)
	if err != nil {
		return request, apierrors.NewBadRequest("invalid resource version: " + err.Error())
	}
	// Without resourceVersionMatch, a limited list reads exactly the given version.
	exact := options.ResourceVersionMatch == metav1.ResourceVersionMatchExact ||
		options.ResourceVersionMatch == "" && options.Limit > 0
	if exact {
		request.Revision = revision
	}
	return request, r.statusError(atPast(ctx, &request, options), object.Key{})
}

// parseVersion reads the resourceVersion of a read. Clients know its errors by kube-apiserver's text, which is a
// 500 for get and watch.
func parseVersion(version string) (int64, error) {
	n, err := object.ParseResourceVersion(version)
	if err == nil {
		return n, nil
	}
	_, number := strconv.ParseUint(version, 10, 64)
	if number == nil {
		return 0, err // a version that Kubernetes could have, and no server of ours
	}
	return 0, &object.Error{Code: object.Versioned, Message: field.Invalid(field.NewPath("resourceVersion"), version, number.Error()).Error()}
}

// openListing opens the snapshot. It refuses a resourceVersion newer than the
// snapshot with an error that makes clients retry.
func (r *resource) openListing(ctx context.Context, request store.ListRequest, options *metainternal.ListOptions) (*store.Listing, error) {
	listing, err := r.api.Store.List(ctx, request)
	if err != nil && request.Past {
		return nil, r.statusError(err, object.Key{})
	}
	if err != nil {
		return nil, withToken(r.statusError(err, object.Key{}), options)
	}
	minRevision, err := object.ParseResourceVersion(options.ResourceVersion)
	if err == nil && options.Continue == "" && minRevision > listing.Revision() {
		return nil, versionTooLarge(tooLargeMessage(minRevision, listing.Revision()))
	}
	return listing, nil
}

// serveList answers a plain JSON LIST with stored bytes. It streams object by
// object as the database returns them.
func (r *resource) serveList(w http.ResponseWriter, req *http.Request, options *metainternal.ListOptions) {
	ctx := req.Context()
	request, err := r.listRequest(ctx, options)
	if err != nil {
		r.fail(w, req, err)
		return
	}
	listing, err := r.openListing(ctx, request, options)
	mark(ctx, stepRead)
	if err != nil {
		r.fail(w, req, err)
		return
	}
	out := newStream(w, req)
	defer out.release()
	out.header(http.StatusOK)
	var after func(last object.Key, n int) (position, error)
	if options.Limit > 0 {
		after = func(last object.Key, n int) (position, error) {
			return r.after(ctx, request, options, listing, last, n)
		}
	}
	if err := r.streamList(out, listing, after, inFlight(ctx)); err != nil {
		// The answer has begun, so only a broken connection can report the error.
		// A client whose list is overtaken by compaction sees a broken answer, not
		// a short list, and lists again.
		if !errors.Is(err, errSinkClosed) {
			r.api.Logger.Error("list failed while it was sent", "resource", r.v.Resource().String(), "error", err)
		}
		panic(http.ErrAbortHandler)
	}
}

// streamList writes the list. The metadata comes first, except in a limited list,
// whose continue token is known only at the end; after makes it, and is nil if there is no limit.
func (r *resource) streamList(out *stream, listing *store.Listing, after func(object.Key, int) (position, error), holder *inflight.Request) error {
	out.buf = append(out.buf, `{"kind":"`...)
	out.buf = append(out.buf, r.v.Kind.ListName...)
	out.buf = append(out.buf, `","apiVersion":"`...)
	out.buf = append(out.buf, r.v.GVK.GroupVersion().String()...)
	out.buf = append(out.buf, '"')
	if after == nil {
		out.buf = r.appendListMeta(out.buf, listing.Revision(), nil)
	}
	out.buf = append(out.buf, `,"items":[`...)
	var last object.Key
	held, n := 0, 0
	for ; listing.Next(); n++ {
		o := listing.Object()
		if n > 0 {
			out.buf = append(out.buf, ',')
		}
		out.buf = r.v.AppendWire(out.buf, r.item, o)
		last = o.Key
		if bytes := listing.Bytes(); bytes != held {
			held = bytes
			holder.Hold(int64(bytes))
		}
		if err := out.spill(); err != nil {
			return err
		}
	}
	if err := listing.Err(); err != nil {
		return err
	}
	out.buf = append(out.buf, ']')
	if after != nil {
		var next *position
		if listing.More() {
			p, err := after(last, n)
			if err != nil {
				return err
			}
			next = &p
		}
		out.buf = r.appendListMeta(out.buf, listing.Revision(), next)
	}
	out.buf = append(out.buf, '}', '\n')
	return out.close()
}

// appendListMeta writes the metadata of a list. As in Kubernetes, the last page of a custom
// kind has an empty continue token, and that of a built-in kind has none.
func (r *resource) appendListMeta(buf []byte, revision int64, next *position) []byte {
	buf = append(buf, `,"metadata":{"resourceVersion":"`...)
	buf = strconv.AppendInt(buf, revision, 10)
	buf = append(buf, '"')
	if next == nil && r.v.Wire.Custom {
		buf = append(buf, `,"continue":""`...)
	}
	if next != nil {
		buf = append(buf, `,"continue":"`...)
		buf = append(buf, next.String()...)
		buf = append(buf, '"')
		if next.Left > 0 {
			buf = append(buf, `,"remainingItemCount":`...)
			buf = strconv.AppendInt(buf, next.Left, 10)
		}
	}
	return append(buf, '}')
}

// listBuilder fills a list object of the Kubernetes library.
type listBuilder struct {
	list  runtime.Object
	items []runtime.Object
}

func (b *listBuilder) finish(from listed) (runtime.Object, error) {
	_, custom := b.list.(*unstructured.UnstructuredList)
	if !custom {
		for _, item := range b.items { // as in Kubernetes, only the list itself has a kind
			item.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
		}
	}
	if err := meta.SetList(b.list, b.items); err != nil {
		return nil, err
	}
	accessor, err := meta.ListAccessor(b.list)
	if err != nil {
		return nil, err
	}
	accessor.SetResourceVersion(strconv.FormatInt(from.revision, 10))
	if from.next == nil && custom {
		accessor.SetContinue("")
	}
	if from.next != nil {
		accessor.SetContinue(from.next.String())
		if from.next.Left > 0 {
			accessor.SetRemainingItemCount(&from.next.Left)
		}
	}
	return b.list, nil
}

// position is the content of a continue token: the list continues after this
// object, in the snapshot of this revision.
type position struct {
	Version   string `json:"v"`
	Revision  int64  `json:"rv"`
	Namespace string `json:"ns,omitempty"`
	Name      string `json:"name"`
	Left      int64  `json:"left,omitempty"` // objects after this one; 0 if not known

	// Newest continues in the newest snapshot, because that of Revision is compacted.
	Newest bool `json:"newest,omitempty"`
}

const positionVersion = "exeunt/v1"

func (p position) String() string {
	p.Version = positionVersion
	data, _ := json.Marshal(p) // strings and an integer: cannot fail
	return base64.RawURLEncoding.EncodeToString(data)
}

// parsePosition reads a continue token. A client may send a forged token. That
// is harmless: a token contains only a revision, a key and a number to show.
func parsePosition(token string) (position, error) {
	var p position
	bad := object.BadRequestf("continue key is not valid: it must be a token that an earlier page of this list returned")
	data, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(token, "="))
	if err != nil || len(data) > 2048 {
		return p, bad
	}
	if err := json.Unmarshal(data, &p); err != nil {
		return p, bad
	}
	if p.Version != positionVersion || p.Revision <= 0 || p.Left < 0 || p.Name == "" || strings.ContainsRune(p.Namespace+p.Name, 0) {
		return p, bad
	}
	return p, nil
}

// after returns the position behind a page of n objects that ends with last. The first
// page counts what is left, for metadata.remainingItemCount; later pages subtract. So
// a long list pays once. As in Kubernetes, a list with selectors has no count.
func (r *resource) after(ctx context.Context, request store.ListRequest, options *metainternal.ListOptions, listing *store.Listing, last object.Key, n int) (position, error) {
	p := position{Revision: listing.Revision(), Namespace: last.Namespace, Name: last.Name}
	if request.Match != nil || request.Name != "" || request.Past {
		return p, nil
	}
	if left, known := listing.Left(); known {
		p.Left = left
		return p, nil
	}
	if options.Continue != "" {
		if before, err := parsePosition(options.Continue); err == nil && before.Left > 0 {
			p.Left = max(1, before.Left-int64(n))
		}
		return p, nil
	}
	total, err := r.count(ctx, request)
	p.Left = max(1, total-int64(n)) // at least one: the page was cut off
	return p, err
}

// withToken adds to the error "expired" of a later page a token that continues the list in the
// newest snapshot. The list is then inconsistent, which the client may prefer to a restart.
func withToken(err error, options *metainternal.ListOptions) error {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || status.ErrStatus.Reason != metav1.StatusReasonExpired {
		return err
	}
	p, parseErr := parsePosition(options.Continue)
	if parseErr != nil {
		return err
	}
	p.Newest = true
	status.ErrStatus.Message = expiredContinue
	status.ErrStatus.ListMeta.Continue = p.String()
	return status
}

// expiredContinue is the text of Kubernetes.
const expiredContinue = "The provided continue parameter is too old to display a consistent list result. You can start a new list without " +
	"the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided " +
	"token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned " +
	"and now may show up in the list."

func (r *resource) count(ctx context.Context, request store.ListRequest) (int64, error) {
	return r.api.Store.Reader().Count(ctx, request.Kind, cmp.Or(request.Namespace, store.AllNamespaces), math.MaxInt64)
}

func tooLargeMessage(asked, current int64) string {
	return fmt.Sprintf("Too large resource version: %d, current: %d", asked, current)
}
