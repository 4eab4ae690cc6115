package report

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/deletion"
	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/store"
)

// mostReported bounds how many objects a report counts for a held deletion, because
// people repeat reports. A preview counts more.
const mostReported = 100_000

// guarded returns the reason of an object that the guard holds. Such an object has
// no other reason.
func (t *reporter) guarded(h *store.Stored) (v1.Reason, error) {
	ref := t.reference(h.Key, "")
	c, err := t.s.previews.Guarded(t.ctx, t.r, h, mostReported)
	if err != nil {
		return v1.Reason{}, err
	}
	least := ""
	if c.AtLeast {
		least = "at least "
	}
	limit, where := c.Allowed(), ""
	if c.Excess.Over {
		limit, where = c.Excess.Limit, c.Excess.Where()
	}
	message := fmt.Sprintf("its deletion waits to be confirmed: %s%d objects would go, and %d may%s", least, c.Going, limit, where)
	another, err := t.s.store.AnotherConfirms(t.ctx, h.Key)
	if err != nil {
		return v1.Reason{}, err
	}
	if another != "" {
		message += "; another user than the one who asked for it must confirm, because of namespace " + another
	}
	since := metav1.Unix(h.Deletion, 0)
	confirm := deletion.Command(ref, "annotate", "--overwrite", fmt.Sprintf("%s=%d", lifecycle.ConfirmCascade, c.Going))
	if c.AtLeast {
		confirm = fmt.Sprintf("set the annotation %s to the number that a preview counts", lifecycle.ConfirmCascade)
	}
	return v1.Reason{
		Type: v1.ReasonGuard, Message: message, Since: &since,
		Resolve: "to see what would go: exeunt preview " + deletion.Target(ref) + "; to confirm: " + confirm + "; to call it off: exeunt restore " + deletion.Target(ref),
	}, nil
}
