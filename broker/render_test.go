package broker_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/exeunt/exeunt/broker"
)

func TestRender(t *testing.T) {
	r, err := broker.Restore(broker.State{
		ID: "id-1", Project: "shop", Name: "web", Credential: "cloud", Deadline: 1, Phase: broker.PhasePending,
		Parameters: broker.Parameters{"size": int64(4), "price": 1.5, "spot": true, "region": "north"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		spec string
		want map[string]any
	}{
		"no placeholder":      {`{"a":[1,2.5,"x",null,{"b":false}]}`, map[string]any{"a": []any{int64(1), 2.5, "x", nil, map[string]any{"b": false}}}},
		"a value has a type":  {`{"a":"${parameters.size}","b":"${parameters.price}","c":"${parameters.spot}"}`, map[string]any{"a": int64(4), "b": 1.5, "c": true}},
		"a text stays a text": {`{"a":"${parameters.size}x${parameters.region}"}`, map[string]any{"a": "4xnorth"}},
		"keys too":            {`{"${parameters.region}":1}`, map[string]any{"north": int64(1)}},
		"what is not given":   {`{"a":"${parameters.image}","b":["${parameters.image}","x"],"c":"v-${parameters.image}"}`, map[string]any{"b": []any{"x"}, "c": "v-"}},
		"escaped":             {`{"a":"$${parameters.size}","b":"x $${y}"}`, map[string]any{"a": "${parameters.size}", "b": "x ${y}"}},
		"not a placeholder":   {`{"a":"${","b":"$","c":"{}"}`, map[string]any{"a": "${", "b": "$", "c": "{}"}},
		"the resource's own": {`{"a":"${resource.namespace}/${resource.name}","b":"${resource.id}","c":"${credential.name}","d":"${xr.name}","e":"${token.secretName}"}`,
			map[string]any{"a": "shop/web", "b": "id-1", "c": "cloud", "d": r.XRName(), "e": r.XRName()}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := r.Render(broker.Template{Spec: []byte(test.spec)})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("rendered (-want +got):\n%s", diff)
			}
		})
	}
}

// TestRenderDoesNotFillValues: placeholders inside the value of a parameter are not
// replaced.
func TestRenderDoesNotFillValues(t *testing.T) {
	r, err := broker.Restore(broker.State{
		ID: "id-1", Project: "shop", Name: "web", Deadline: 1, Phase: broker.PhasePending,
		Parameters: broker.Parameters{"a": "${credential.name}"},
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := r.Render(broker.Template{Spec: []byte(`{"a":"${parameters.a}","b":"x${parameters.a}"}`)})
	if err != nil || got["a"] != "${credential.name}" || got["b"] != "x${credential.name}" {
		t.Errorf("rendered %v, %v", got, err)
	}
}
