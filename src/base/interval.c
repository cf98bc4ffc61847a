/*
 * interval.c: a set of extents that may overlap, in which one that overlaps a given extent
 * is found in logarithmic time.
 *
 * It is a treap: a search tree by the first address that is also a heap by a hash of the
 * node's own address, which keeps it balanced whatever the order of insertion. Each node
 * knows the furthest end below it. The nodes belong to the caller: nothing is allocated.
 */
#include "base/base.h"

/* The finaliser of splitmix64. */
static uint64_t priority(const mu_interval *node)
{
    uint64_t x = (uint64_t)(uintptr_t)node;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static bool precedes(const mu_interval *a, const mu_interval *b)
{
    return a->extent.from != b->extent.from ? a->extent.from < b->extent.from
                                            : (uintptr_t)a < (uintptr_t)b;
}

static void update_reach(mu_interval *node)
{
    node->reach = node->extent.to;
    if (node->left && node->left->reach > node->reach) {
        node->reach = node->left->reach;
    }
    if (node->right && node->right->reach > node->reach) {
        node->reach = node->right->reach;
    }
}

/* Part a tree into what precedes `at` and what follows. */
static void split(mu_interval *tree, const mu_interval *at, mu_interval **before,
                  mu_interval **after)
{
    if (!tree) {
        *before = *after = NULL;
        return;
    }
    if (precedes(tree, at)) {
        split(tree->right, at, &tree->right, after);
        *before = tree;
    } else {
        split(tree->left, at, before, &tree->left);
        *after = tree;
    }
    update_reach(tree);
}

/* One tree of two, all of the first preceding all of the second. */
static mu_interval *join(mu_interval *first, mu_interval *second)
{
    if (!first || !second) {
        return first ? first : second;
    }
    if (priority(first) > priority(second)) {
        first->right = join(first->right, second);
        update_reach(first);
        return first;
    }
    second->left = join(first, second->left);
    update_reach(second);
    return second;
}

static bool is_empty(const mu_interval *node)
{
    return node->extent.from >= node->extent.to;
}

void mu_interval_insert(mu_interval **root, mu_interval *node)
{
    mu_interval *before, *after;
    if (is_empty(node)) {
        return;
    }
    split(*root, node, &before, &after);
    node->left = node->right = NULL;
    update_reach(node);
    *root = join(join(before, node), after);
}

static void detach(mu_interval **tree, const mu_interval *node)
{
    if (*tree == node) {
        *tree = join(node->left, node->right);
        return;
    }
    detach(precedes(*tree, node) ? &(*tree)->right : &(*tree)->left, node);
    update_reach(*tree);
}

void mu_interval_remove(mu_interval **root, mu_interval *node)
{
    if (!is_empty(node)) {
        detach(root, node);
    }
}

mu_interval *mu_interval_find(mu_interval *root, mu_extent extent)
{
    /* If something on the left ends beyond extent.from but nothing there overlaps, it begins
     * at extent.to or later, and so does all on the right. */
    while (root && !mu_extents_overlap(root->extent, extent)) {
        root = root->left && root->left->reach > extent.from ? root->left : root->right;
    }
    return root;
}
