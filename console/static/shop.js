// @ts-check
// The example shop: a namespace with a deployment, a replica set, three pods, a
// configuration that two owners share, and one that a finalizer holds. No controller
// runs here, so the page creates what a controller would.

import { post, Failure } from "./api.js";

/** @param {any} owner @param {boolean} [blocking] */
const ownedBy = (owner, blocking) => ({
  apiVersion: owner.apiVersion, kind: owner.kind, name: owner.metadata.name, uid: owner.metadata.uid, blockOwnerDeletion: !!blocking,
});

/** @param {string} path @param {any} object */
async function create(path, object) {
  const answer = await post(path, object);
  return { ...answer, apiVersion: object.apiVersion, kind: object.kind };
}

export async function createShop() {
  try {
    await create("/api/v1/namespaces", { apiVersion: "v1", kind: "Namespace", metadata: { name: "shop" } });
  } catch (err) {
    if (!(err instanceof Failure) || err.code !== 409) throw err;
    throw new Failure(409, "There is a namespace shop already: delete it first, or look at it.");
  }
  const template = { metadata: { labels: { app: "web" } }, spec: { containers: [{ name: "web", image: "shop/web:v1" }] } };
  const selector = { matchLabels: { app: "web" } };
  const apps = "/apis/apps/v1/namespaces/shop/", core = "/api/v1/namespaces/shop/";
  const web = await create(apps + "deployments", { apiVersion: "apps/v1", kind: "Deployment", metadata: { name: "web", labels: { app: "web" } }, spec: { replicas: 3, selector, template } });
  const set = await create(apps + "replicasets", { apiVersion: "apps/v1", kind: "ReplicaSet", metadata: { name: "web-1", labels: { app: "web" }, ownerReferences: [ownedBy(web, true)] }, spec: { replicas: 3, selector, template } });
  for (const n of [1, 2, 3]) {
    await create(core + "pods", { apiVersion: "v1", kind: "Pod", metadata: { name: "web-1-" + n, labels: { app: "web" }, ownerReferences: [ownedBy(set, true)] }, spec: template.spec });
  }
  const shared = await create(core + "configmaps", { apiVersion: "v1", kind: "ConfigMap", metadata: { name: "shared" }, data: { theme: "quiet" } });
  await create(core + "configmaps", { apiVersion: "v1", kind: "ConfigMap", metadata: { name: "prices", ownerReferences: [ownedBy(web), ownedBy(shared)] }, data: { apple: "1" } });
  await create(core + "configmaps", { apiVersion: "v1", kind: "ConfigMap", metadata: { name: "ledger", ownerReferences: [ownedBy(web, true)], finalizers: ["backup.example.com/snapshot"] }, data: { balance: "42" } });
}
