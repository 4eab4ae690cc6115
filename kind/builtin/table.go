package builtin

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/exeunt/exeunt/kind"
)

// The content of cells without a value or with an unknown value.
const (
	none    = "<none>"
	unknown = "<unknown>"
	unset   = "<unset>"
)

// table defines what `kubectl get` shows of a kind. row returns one cell per column,
// including those of -o wide, which the client hides.
type table[P any] struct {
	columns []metav1.TableColumnDefinition
	row     func(obj P, now time.Time) []any
	// conditions mark the row of a finished object. Nil: none.
	conditions func(obj P) []metav1.TableRowCondition
}

// convertor adapts a table for the library's handlers.
type convertor[P metav1.Object] struct {
	resource schema.GroupResource
	table    table[P]
	now      func() time.Time
}

func newConvertor[P metav1.Object](resource schema.GroupResource, t table[P]) rest.TableConvertor {
	return &convertor[P]{resource: resource, table: t, now: time.Now}
}

// ConvertToTable implements rest.TableConvertor.
func (c *convertor[P]) ConvertToTable(_ context.Context, obj, options runtime.Object) (*metav1.Table, error) {
	now := c.now()
	return kind.NewTable(obj, options, c.table.columns, func(item runtime.Object) (metav1.TableRow, error) { return c.row(item, now) })
}

func (c *convertor[P]) row(item runtime.Object, now time.Time) (metav1.TableRow, error) {
	p, ok := item.(any).(P)
	if !ok {
		return metav1.TableRow{}, &apierrors.StatusError{ErrStatus: metav1.Status{
			Status:  metav1.StatusFailure,
			Code:    http.StatusNotAcceptable,
			Reason:  metav1.StatusReasonNotAcceptable,
			Message: fmt.Sprintf("the resource %s has no Table of %T", c.resource, item),
		}}
	}
	row := metav1.TableRow{Cells: c.table.row(p, now)}
	if c.table.conditions != nil {
		row.Conditions = c.table.conditions(p)
	}
	return row, nil
}

// nameAndAge is the default table.
func nameAndAge[P metav1.Object]() table[P] {
	return table[P]{
		columns: columns(),
		row:     func(obj P, now time.Time) []any { return []any{obj.GetName(), age(obj, now)} },
	}
}

// columns adds the name before, and the age after, the given columns.
func columns(between ...metav1.TableColumnDefinition) []metav1.TableColumnDefinition {
	return append(append(named(), between...), ageColumn())
}

// named adds the name before the given columns.
func named(rest ...metav1.TableColumnDefinition) []metav1.TableColumnDefinition {
	name := metav1.TableColumnDefinition{Name: "Name", Type: "string", Format: "name", Description: "The object's name, unique among its kind within its namespace."}
	return append([]metav1.TableColumnDefinition{name}, rest...)
}

func ageColumn() metav1.TableColumnDefinition {
	return text("Age", "How long ago the object was created.")
}

func text(name, description string) metav1.TableColumnDefinition {
	return metav1.TableColumnDefinition{Name: name, Type: "string", Description: description}
}

func number(name, description string) metav1.TableColumnDefinition {
	return metav1.TableColumnDefinition{Name: name, Type: "integer", Description: description}
}

func boolean(name, description string) metav1.TableColumnDefinition {
	return metav1.TableColumnDefinition{Name: name, Type: "boolean", Description: description}
}

// wide marks a column that only -o wide shows.
func wide(c metav1.TableColumnDefinition) metav1.TableColumnDefinition {
	c.Priority = 1
	return c
}

func age(obj metav1.Object, now time.Time) string {
	return since(obj.GetCreationTimestamp().Time, now)
}

func since(t, now time.Time) string {
	if t.IsZero() {
		return unknown
	}
	return duration.HumanDuration(now.Sub(t))
}

// or returns s, or the placeholder if s is empty.
func or(s, nothing string) string {
	if s == "" {
		return nothing
	}
	return s
}

// shorten joins the first elements of a list and counts the rest.
func shorten(list []string, limit int, separator string) string {
	if len(list) <= limit {
		return strings.Join(list, separator)
	}
	return fmt.Sprintf("%s + %d more...", strings.Join(list[:limit], separator), len(list)-limit)
}
