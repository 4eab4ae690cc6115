package object

// Storage names (Key.Kind) of the kinds that several packages treat specially.
// SQL statements and triggers name some of them too.
const (
	Namespaces           = "namespaces"
	Definitions          = "customresourcedefinitions.apiextensions.k8s.io"
	Events               = "events" // of both API groups
	Secrets              = "secrets"
	Pods                 = "pods"
	ProvisionedResources = "provisionedresources.provisioning.exeunt.dev"
)
