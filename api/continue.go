package api

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

// position is the content of a continue token: the list continues after this
// object, in the snapshot of this revision.
type position struct {
	Version   string `json:"v"`
	Revision  int64  `json:"rv"`
	Namespace string `json:"ns,omitempty"`
	Name      string `json:"name"`
	Left      int64  `json:"left,omitempty"` // objects after this one; 0: not known

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
	if request.Match != nil || request.Name != "" {
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
	return r.api.store.Reader().Count(ctx, request.Kind, cmp.Or(request.Namespace, store.AllNamespaces), math.MaxInt64)
}

func tooLargeMessage(asked, current int64) string {
	return fmt.Sprintf("Too large resource version: %d, current: %d", asked, current)
}
