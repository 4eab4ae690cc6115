package archive

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"strconv"

	"github.com/exeunt/exeunt/admission/quota"
	"github.com/exeunt/exeunt/admission/service"
	"github.com/exeunt/exeunt/deletion/deletiontest"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/builtin"
	"github.com/exeunt/exeunt/kind/custom"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store"
	"github.com/exeunt/exeunt/store/storetest"
)

const podTemplate = `"template":{"metadata":{"labels":{"a":"b"}},"spec":{"restartPolicy":"RESTART","containers":[{"name":"x","image":"x"}]}}`

// undoSpecs are kinds whose objects are made as the API makes them: with defaults, what the
// kind derives from the uid, addresses and ports. UID, NAME and OTHER are the uid, the
// name and the kind of an object that exists, NAMESPACE is the world's.
var undoSpecs = map[string]string{
	"jobs.batch":                                    `"spec":{` + strings.Replace(podTemplate, "RESTART", "Never", 1) + `}`,
	"cronjobs.batch":                                `"spec":{"schedule":"0 0 * * *","jobTemplate":{"spec":{` + strings.Replace(podTemplate, "RESTART", "OnFailure", 1) + `}}}`,
	"replicasets.apps":                              `"spec":{"selector":{"matchLabels":{"a":"b"}},` + strings.Replace(podTemplate, "RESTART", "Always", 1) + `}`,
	"statefulsets.apps":                             `"spec":{"serviceName":"s","selector":{"matchLabels":{"a":"b"}},` + strings.Replace(podTemplate, "RESTART", "Always", 1) + `}`,
	"controllerrevisions.apps":                      `"revision":3,"data":{"spec":{"owner":"UID"}}`,
	"services":                                      `"spec":{"type":"NodePort","ports":[{"name":"a","port":80},{"name":"b","port":81,"protocol":"UDP"}]}`,
	"leases.coordination.k8s.io":                    `"spec":{"holderIdentity":"UID","leaseDurationSeconds":5}`,
	"endpointslices.discovery.k8s.io":               `"addressType":"IPv4","ports":[{"port":80}],"endpoints":[{"addresses":["10.1.2.3"],"targetRef":{"kind":"Pod","namespace":"NAMESPACE","name":"NAME","uid":"UID"}}]`,
	"persistentvolumeclaims":                        `"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}},"volumeName":"pv"}`,
	"persistentvolumes":                             `"spec":{"accessModes":["ReadWriteOnce"],"capacity":{"storage":"1Gi"},"hostPath":{"path":"/x"},"claimRef":{"apiVersion":"v1","kind":"PersistentVolumeClaim","namespace":"NAMESPACE","name":"NAME","uid":"UID"}}`,
	"serviceaccounts":                               `"secrets":[{"name":"NAME"}]`,
	"networkpolicies.networking.k8s.io":             `"spec":{"podSelector":{},"policyTypes":["Ingress"]}`,
	"poddisruptionbudgets.policy":                   `"spec":{"minAvailable":1,"selector":{"matchLabels":{"a":"b"}}}`,
	"daemonsets.apps":                               `"spec":{"selector":{"matchLabels":{"a":"b"}},` + strings.Replace(podTemplate, "RESTART", "Always", 1) + `}`,
	"replicationcontrollers":                        `"spec":{"replicas":1,"selector":{"a":"b"},` + strings.Replace(podTemplate, "RESTART", "Always", 1) + `}`,
	"podtemplates":                                  strings.Replace(podTemplate, "RESTART", "Always", 1),
	"endpoints":                                     `"subsets":[{"addresses":[{"ip":"10.1.2.3"}],"ports":[{"port":80}]}]`,
	"limitranges":                                   `"spec":{"limits":[{"type":"PersistentVolumeClaim","max":{"storage":"2Gi"}}]}`,
	"horizontalpodautoscalers.autoscaling":          `"spec":{"maxReplicas":3,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"NAME"}}`,
	"ingresses.networking.k8s.io":                   `"spec":{"defaultBackend":{"service":{"name":"x","port":{"number":80}}}}`,
	"roles.rbac.authorization.k8s.io":               `"rules":[{"apiGroups":[""],"resources":["pods"],"verbs":["get"]}]`,
	"rolebindings.rbac.authorization.k8s.io":        `"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"r"},"subjects":[{"kind":"ServiceAccount","namespace":"NAMESPACE","name":"default"}]`,
	"csistoragecapacities.storage.k8s.io":           `"storageClassName":"c","capacity":"1Gi"`,
	"nodes":                                         `"spec":{"podCIDR":"10.1.0.0/24"}`,
	"storageclasses.storage.k8s.io":                 `"provisioner":"example.com/p"`,
	"csidrivers.storage.k8s.io":                     `"spec":{"attachRequired":true}`,
	"volumeattachments.storage.k8s.io":              `"spec":{"attacher":"example.com","nodeName":"n","source":{"persistentVolumeName":"pv"}}`,
	"priorityclasses.scheduling.k8s.io":             `"value":7,"description":"x"`,
	"runtimeclasses.node.k8s.io":                    `"handler":"runc"`,
	"ingressclasses.networking.k8s.io":              `"spec":{"controller":"example.com/c"}`,
	"clusterroles.rbac.authorization.k8s.io":        `"rules":[{"apiGroups":[""],"resources":["pods"],"verbs":["get"]}]`,
	"clusterrolebindings.rbac.authorization.k8s.io": `"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"r"},"subjects":[{"kind":"ServiceAccount","namespace":"NAMESPACE","name":"default"}]`,
	"validatingwebhookconfigurations.admissionregistration.k8s.io":   `"webhooks":[{"name":"a.example.com","admissionReviewVersions":["v1"],"sideEffects":"None","clientConfig":{"url":"https://127.0.0.1:1/"},"rules":[{"apiGroups":["none.example.com"],"apiVersions":["v1"],"resources":["things"],"operations":["CREATE"]}]}]`,
	"flowschemas.flowcontrol.apiserver.k8s.io":                       `"spec":{"priorityLevelConfiguration":{"name":"exempt"},"matchingPrecedence":500}`,
	"deviceclasses.resource.k8s.io":                                  `"spec":{}`,
	"resourceclaims.resource.k8s.io":                                 `"spec":{}`,
	"csinodes.storage.k8s.io":                                        `"spec":{"drivers":[{"name":"d.example.com","nodeID":"n","topologyKeys":null}]}`,
	"resourceclaimtemplates.resource.k8s.io":                         `"spec":{"spec":{}}`,
	"resourceslices.resource.k8s.io":                                 `"spec":{"driver":"d.example.com","nodeName":"n","pool":{"name":"p","generation":1,"resourceSliceCount":1}}`,
	"devicetaintrules.resource.k8s.io":                               `"spec":{"taint":{"key":"example.com/k","effect":"NoSchedule"}}`,
	"volumeattributesclasses.storage.k8s.io":                         `"driverName":"d.example.com","parameters":{"a":"b"}`,
	"prioritylevelconfigurations.flowcontrol.apiserver.k8s.io":       `"spec":{"type":"Limited","limited":{"nominalConcurrencyShares":5,"limitResponse":{"type":"Reject"}}}`,
	"servicecidrs.networking.k8s.io":                                 `"spec":{"cidrs":["10.9.0.0/24"]}`,
	"storageversionmigrations.storagemigration.k8s.io":               `"spec":{"resource":{"group":"apps","resource":"deployments"}}`,
	"mutatingwebhookconfigurations.admissionregistration.k8s.io":     `"webhooks":[{"name":"a.example.com","admissionReviewVersions":["v1"],"sideEffects":"None","clientConfig":{"url":"https://127.0.0.1:1/"},"rules":[{"apiGroups":["none.example.com"],"apiVersions":["v1"],"resources":["things"],"operations":["CREATE"]}]}]`,
	"validatingadmissionpolicies.admissionregistration.k8s.io":       `"spec":{"matchConstraints":{"resourceRules":[{"apiGroups":["none.example.com"],"apiVersions":["v1"],"resources":["things"],"operations":["CREATE"]}]},"validations":[{"expression":"true"}]}`,
	"validatingadmissionpolicybindings.admissionregistration.k8s.io": `"spec":{"policyName":"none","validationActions":["Deny"]}`,
	"mutatingadmissionpolicies.admissionregistration.k8s.io":         `"spec":{"matchConstraints":{"resourceRules":[{"apiGroups":["none.example.com"],"apiVersions":["v1"],"resources":["things"],"operations":["CREATE"]}]},"reinvocationPolicy":"Never","mutations":[{"patchType":"ApplyConfiguration","applyConfiguration":{"expression":"Object{}"}}]}`,
	"mutatingadmissionpolicybindings.admissionregistration.k8s.io":   `"spec":{"policyName":"none"}`,
	"widgets.undo.example.com":                                       `"spec":{"color":"red","deep":{"one":["UID"]}},"status":{"ready":true}`,
}

const undoWidgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.undo.example.com}
spec:
  group: undo.example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              color: {type: string}
              size: {type: integer, default: 3}
              deep: {type: object, properties: {one: {type: array, items: {type: string}}}}
          status: {type: object, properties: {ready: {type: boolean}}}
`

// newUndoWorlds is a world with quotas and with the kinds of undoSpecs.
func newUndoWorlds(t *testing.T, db *sqldb.DB) *world {
	t.Helper()
	w := newWorldOf(t, db, store.ArchiveOptions{For: time.Hour}, func(st *store.Store) {
		if _, err := quota.New(db, st, kind.NewRegistry(builtin.Kinds()), slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
	})
	w.serveUndoKinds()
	w.Policed()
	w.archive.opts.KindWait = time.Minute
	return w
}

// serveUndoKinds adds the kinds of undoSpecs that a server has and a world has not.
func (w *world) serveUndoKinds() {
	w.Helper()
	widgets, err := custom.BuiltIn([]byte(undoWidgets))
	if err != nil {
		w.Fatal(err)
	}
	ports, err := service.NodePortKind()
	if err != nil {
		w.Fatal(err)
	}
	addresses := &service.Addresses{Store: w.store, Kinds: w.kinds, Range: netip.MustParsePrefix("10.96.0.0/12"), Log: slog.New(slog.DiscardHandler)}
	w.kinds.Put(widgets, ports, builtin.Services(addresses.Attach))
}

// gadgets is a definition of a world's own, in the group GROUP.
const gadgets = `"spec":{"group":"GROUP","scope":"Namespaced","names":{"plural":"gadgets","singular":"gadget","kind":"Gadget","listKind":"GadgetList"},
"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{"color":{"type":"string"},"size":{"type":"integer","default":3}}}}}}}]}`

// define gives the world a definition, and waits until its kind is served.
func (u *undoWorld) define() {
	u.Helper()
	group := u.namespace + ".example.com"
	key := object.Key{Kind: object.Definitions, Name: "gadgets." + group}
	u.definition = u.createAs(key, strings.ReplaceAll(gadgets, "GROUP", group), func(*metav1.ObjectMeta) {})
	dbtest.Await(u, "the definition is served", func() bool {
		k, served := u.kinds.Snapshot().Stored(key.Name)
		o, _, _ := u.find(key)
		return served && len(k.Versions) > 0 && strings.Contains(string(o.Body), `"type":"Established","status":"True"`)
	})
	u.definition, _, _ = u.find(key)
	u.all = append(u.all, u.definition)
	u.log("define %s", key.Name)
}

// undefine removes the definition at the end of the world.
func (u *undoWorld) undefine() {
	u.Helper()
	if u.definition.UID == "" {
		return
	}
	_, err := u.store.Delete(u.Context(), store.DeleteRequest{Key: u.definition.Key, Rules: u.Rules(object.Definitions), Actor: "alice"})
	if err != nil {
		u.Fatal(err)
	}
	u.settle()
}

// deny lets the policy refuse an operation on some objects, in some worlds.
func (u *undoWorld) deny(operation string) {
	u.Helper()
	if u.rand.IntN(3) > 0 {
		return
	}
	var denials []string
	for _, o := range u.all {
		if u.rand.IntN(3) == 0 {
			denials = append(denials, deletiontest.Denial(operation, o.Key))
		}
	}
	u.denies = len(denials) > 0
	u.log("deny %v", denials)
	u.Deny(denials...)
}

func (u *undoWorld) admit() {
	u.Helper()
	if u.denies {
		u.denies = false
		u.log("admit all")
		u.Deny()
	}
}

// createAs stores an object, with the fields of spec, as the API does.
func (u *undoWorld) createAs(key object.Key, spec string, change func(*metav1.ObjectMeta)) object.Object {
	u.Helper()
	other := object.Object{Key: object.Key{Name: "none"}, UID: "none"}
	if len(u.all) > 0 {
		other = u.all[u.rand.IntN(len(u.all))]
	}
	k, ok := u.kinds.Snapshot().Stored(key.Kind)
	if !ok {
		u.Fatalf("no kind %s", key.Kind)
	}
	v := k.Stored()
	spec = strings.NewReplacer(`"UID"`, strconv.Quote(string(other.UID)), "NAMESPACE", u.namespace, "NAME", other.Name).Replace(spec)
	for {
		obj, err := v.Decode([]byte(fmt.Sprintf(`{"metadata":{"name":%q},%s}`, key.Name, spec)), "")
		if err != nil {
			u.Fatal(err)
		}
		m, err := meta.Accessor(obj)
		if err != nil {
			u.Fatal(err)
		}
		var changed metav1.ObjectMeta
		change(&changed)
		m.SetOwnerReferences(changed.OwnerReferences)
		m.SetFinalizers(changed.Finalizers)
		m.SetAnnotations(changed.Annotations)
		m.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "manager", Operation: "Update", APIVersion: v.GVK.GroupVersion().String()}})
		builtin.Scheme().Default(obj)
		made, _, err := v.Prepare(u.Context(), v.Strategy, obj, lifecycle.Creation{Namespace: key.Namespace, Now: time.Now(), UID: types.UID(uuid.NewString())}, nil)
		if err != nil {
			u.Fatalf("%s: %v", key, err)
		}
		created, err := u.store.Create(u.Context(), store.RequestFor(made))
		if errors.Is(err, object.ErrAgain) {
			continue
		}
		if err != nil {
			u.Fatal(err)
		}
		return created
	}
}

// limit gives the namespace a quota that the objects which exist fill exactly, or exceed: then one
// that leaves cannot come back while the quota exists.
func (u *undoWorld) limit() {
	u.Helper()
	used := map[string]int{}
	for _, o := range u.all {
		if o.Namespace != "" {
			used["count/"+o.Kind]++
		}
	}
	kinds := slices.Sorted(maps.Keys(used))
	used["count/resourcequotas"]++
	key := object.Key{Kind: resourceQuotas, Namespace: u.namespace, Name: "full"}
	u.full = quotaOf(used)
	fields := u.full
	if len(kinds) > 0 && u.rand.IntN(2) == 0 {
		used[kinds[u.rand.IntN(len(kinds))]]--
		fields, u.exceeded = quotaOf(used), true
	}
	quota := storetest.Object(u, key, fields)
	quota.InNamespace = true
	u.all = append(u.all, storetest.Create(u, u.store, quota))
	u.log("quota %s", fields)
}

func quotaOf(hard map[string]int) string {
	var text []string
	for _, name := range slices.Sorted(maps.Keys(hard)) {
		text = append(text, fmt.Sprintf(`%q:"%d"`, name, hard[name]))
	}
	return `,"spec":{"hard":{` + strings.Join(text, ",") + `}},"status":{}`
}

// relax makes room in a quota that is exceeded.
func (u *undoWorld) relax(before map[object.Key][]byte) {
	u.Helper()
	key := object.Key{Kind: resourceQuotas, Namespace: u.namespace, Name: "full"}
	o, m, ok := u.find(key)
	if !ok {
		u.Fatalf("%s is gone", key)
	}
	body := storetest.Object(u, key, u.full, func(made *metav1.ObjectMeta) { *made = m }).Body
	if _, err := u.store.Update(u.Context(), store.UpdateRequest{Key: key, IfRevision: o.Revision, Meta: m, Body: body}); err != nil {
		u.Fatal(err)
	}
	before[key] = body
	u.log("quota %s", u.full)
}
